// Sorted edges become the sections of one direction of a graph.
// Threads: one at a time. Memory: the offsets (8 bytes a node) and buffers.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/sort/edge_sorter.h"
#include "data/source/import_options.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

enum class Direction { kIn, kOut };

struct AdjacencyShape {
  uint64_t nodes = 0;  // more than every row
  // Keeps one of several edges with equal ends: weights added, the latest timestamp, the first row.
  bool coalesce = false;
  bool weights = false, timestamps = false, edge_ids = false;  // sections wanted; the records must have them
  const Renumbering* renumbering = nullptr;                    // for messages, which name the source's rows
};

struct AdjacencyCounts {
  uint64_t edges = 0, self_loops = 0;
  uint64_t duplicates = 0, equal = 0;  // beyond the first with equal ends: dropped, and kept
  uint64_t max_degree = 0;             // of the rows that edges are gathered under
  uint64_t isolated_nodes = 0;         // without an edge at either end
};

// Writes in_* or out_*. `directory`: for temporary files. `transposed`, if any: is given every edge that was kept, ends
// swapped, in this order. Errors: of the disk; Cancelled; InvalidArgument where weights add up to no finite number.
template <class Record>
absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<Record>& sorted, const AdjacencyShape& shape,
                                               Direction direction, const std::filesystem::path& directory,
                                               ImportMonitor& monitor, GraphWriter& writer,
                                               EdgeSorter<Record>* transposed);

extern template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<PlainEdge>&, const AdjacencyShape&, Direction,
                                                               const std::filesystem::path&, ImportMonitor&,
                                                               GraphWriter&, EdgeSorter<PlainEdge>*);
extern template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<WeightedEdge>&, const AdjacencyShape&,
                                                               Direction, const std::filesystem::path&, ImportMonitor&,
                                                               GraphWriter&, EdgeSorter<WeightedEdge>*);
extern template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<FullEdge>&, const AdjacencyShape&, Direction,
                                                               const std::filesystem::path&, ImportMonitor&,
                                                               GraphWriter&, EdgeSorter<FullEdge>*);

}  // namespace permafrost::data
