// Sorted edges, their ends renumbered, sorted again.
// Threads: one at a time; sorts over several by itself.
// Memory: what the sort is given, and kOrderBytesPerNode for each node. Disk: the edges once more, without a name.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/sort/edge_sorter.h"
#include "data/source/import_monitor.h"

namespace permafrost::data {

struct RenumberEdgesOptions {
  NodeOrder order = NodeOrder::kNone;  // another one
  uint64_t nodes = 0;                  // more than every row
  bool coalesce = false;               // edges with equal ends will be one, and count as one
};

// `sorted`: after Finish; its memory is given back before that of the new one is taken. Equal edges stay in their
// order. `sorting`: of the new one. Sets `renumbering`. Returns the edges after Finish. Errors: of the disk; Cancelled.
template <class Record>
absl::StatusOr<std::unique_ptr<EdgeSorter<Record>>> RenumberEdges(std::unique_ptr<EdgeSorter<Record>> sorted,
                                                                  const RenumberEdgesOptions& options,
                                                                  const EdgeSorterOptions& sorting,
                                                                  ImportMonitor& monitor, Renumbering& renumbering);

extern template absl::StatusOr<std::unique_ptr<EdgeSorter<PlainEdge>>> RenumberEdges(
    std::unique_ptr<EdgeSorter<PlainEdge>>, const RenumberEdgesOptions&, const EdgeSorterOptions&, ImportMonitor&,
    Renumbering&);
extern template absl::StatusOr<std::unique_ptr<EdgeSorter<WeightedEdge>>> RenumberEdges(
    std::unique_ptr<EdgeSorter<WeightedEdge>>, const RenumberEdgesOptions&, const EdgeSorterOptions&, ImportMonitor&,
    Renumbering&);
extern template absl::StatusOr<std::unique_ptr<EdgeSorter<FullEdge>>> RenumberEdges(
    std::unique_ptr<EdgeSorter<FullEdge>>, const RenumberEdgesOptions&, const EdgeSorterOptions&, ImportMonitor&,
    Renumbering&);

}  // namespace permafrost::data
