// Gives rows another order than the source's: finds the order, and puts edges and rows of tables into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/monotonic.h"
#include "data/sort/edge_sorter.h"
#include "data/sort/nameless_file.h"
#include "data/source/import_options.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// The rows that the store gives to the source's rows.
// Threads: const methods are safe anywhere. Memory: 4 bytes a node, or none.
class Renumbering {
 public:
  Renumbering() = default;  // none: every row is its own
  // old_of_new: each row of the source once, in the store's order.
  static Renumbering FromOrder(std::span<const NodeId> old_of_new);

  bool none() const { return new_of_old_.empty(); }
  NodeId New(NodeId old) const { return none() ? old : new_of_old_[old]; }
  // For messages: looks through all rows.
  NodeId Old(NodeId row) const;
  // Call it only if there is a renumbering.
  std::vector<NodeId> OldOfNew() const;

 private:
  std::vector<NodeId> new_of_old_;
};

// The source's rows as node_numbers, where rows were renumbered; sets summary.named then.
absl::Status WriteSourceRows(const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary);

// Orders of nodes that put together the nodes that are drawn together. Threads: pure, except for what `edges` does.
// Memory: kOrderBytesPerNode for each node, and the neighbours of one.
inline constexpr uint64_t kOrderBytesPerNode = 16;
// This many of a node's first in-neighbours are asked, so that a hub takes no more memory than they do.
inline constexpr size_t kMostAsked = size_t{1} << 16;

// Edges that begin in each node, up to 2^32 - 1: how often it stands among other nodes' in-neighbours, and so is drawn.
using OutDegrees = std::vector<uint32_t>;

// By falling degree, ties by row. Returns the rows in their new order.
std::vector<NodeId> OrderByDegree(const OutDegrees& degrees);

// Gives visit(node, sources) for each node that edges end in, rising; `sources` rise and may stand twice; those after
// the first kMostAsked may be left out. Called again for each pass.
using EdgeLists =
    std::function<absl::Status(const std::function<void(NodeId node, std::span<const NodeId> sources)>& visit)>;

// Communities of at most 4,096 nodes, in each of them communities of at most 64, in these by falling degree, ties by
// row. A community stands where the row is that its members took their label from. Each level: label propagation, in
// which a node takes the label that most of its in-neighbours have among those that have room, its own where that is
// as good, else the least; at most five passes over all edges, fewer once less than a hundredth of the nodes moved.
// Deterministic. Sources: Raghavan, Albert and Kumara 2007 (label propagation); Meyerhenke, Sanders and Schulz 2014,
// "Partitioning complex networks via size-constrained clustering"; Boldi, Rosa, Santini and Vigna 2011, "Layered label
// propagation" (one order out of several sizes of clusters). Errors: those of `edges`.
absl::StatusOr<std::vector<NodeId>> OrderByCommunity(const OutDegrees& degrees, const EdgeLists& edges);

// Sorted edges, their ends renumbered, sorted again.
// Threads: one at a time; sorts over several by itself.
// Memory: what the sort is given, and kOrderBytesPerNode for each node. Disk: the edges once more, without a name.
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

// Rows of equal length that come in the order of the source and are taken in the order of the store, through a file
// that has no name.
// Threads: one at a time. Memory: memory_bytes, and a row for each part of the file.
// Cost where rows are renumbered: each is written and read once more, none by itself. Rows go to as many parts of the
// file as make each fit half of the memory when it is read; the other half are the parts' buffers.
struct RowSpoolOptions {
  std::filesystem::path directory;
  uint64_t rows = 0, row_bytes = 0;
  uint64_t memory_bytes = 0;
};

class RowSpool {
 public:
  // Borrows the renumbering, which is none or of all `rows`.
  static absl::StatusOr<RowSpool> Create(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop);

  // Takes in the next rows, whole ones. Errors: of the disk; Cancelled.
  absl::Status Append(std::span<const std::byte> rows);
  // After the last row, once: all of them in the store's order, some at a time.
  absl::Status Drain(const std::function<absl::Status(std::span<const std::byte> rows)>& take);

 private:
  RowSpool(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop, NamelessFile file);
  // Rows of the store [part * rows_of_part_, ...), each behind its number there.
  struct Part {
    uint64_t written = 0;  // bytes
    std::vector<std::byte> buffer;
  };
  uint64_t record_bytes() const { return sizeof(NodeId) + options_.row_bytes; }
  absl::Status Flush(size_t part);
  absl::Status DrainPart(size_t part, std::vector<std::byte>& rows);

  RowSpoolOptions options_;
  const Renumbering* renumbering_;
  std::stop_token stop_;
  NamelessFile file_;
  uint64_t rows_of_part_ = 0, buffer_bytes_ = 0;
  std::vector<Part> parts_;  // none where rows are not renumbered
  uint64_t appended_ = 0;
};

}  // namespace permafrost::data
