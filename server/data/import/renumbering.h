// Stores rows in another order than the source's. Finds the order, and applies it to edges and to the rows of tables.
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

// Maps the source's rows to the store's rows.
// Threads: const methods are safe anywhere. Memory: 4 bytes a node, or none.
class Renumbering {
 public:
  Renumbering() = default;  // no renumbering: rows stay as they are
  // `old_of_new` lists each row of the source once, in the store's order.
  static Renumbering FromOrder(std::span<const NodeId> old_of_new);

  bool none() const { return new_of_old_.empty(); }
  NodeId New(NodeId old) const { return none() ? old : new_of_old_[old]; }
  // Returns the source's row for a row of the store. The call searches all rows, so use it only for messages.
  NodeId Old(NodeId row) const;
  // Returns the source's row of each row of the store. Call it only if none() is false.
  std::vector<NodeId> OldOfNew() const;

 private:
  std::vector<NodeId> new_of_old_;
};

// If rows were renumbered, writes each node's row in the source to the section node_numbers, and sets summary.named.
// Otherwise does nothing.
absl::Status WriteSourceRows(const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary);

// Finds orders in which nodes that are sampled together lie close together.
// Threads: pure, except for what `edges` does. Memory: kOrderBytesPerNode per node, and the in-neighbours of one
// node.
inline constexpr uint64_t kOrderBytesPerNode = 16;
// Only this many first in-neighbours of a node are looked at. This limit bounds the memory for a hub.
inline constexpr size_t kMostAsked = size_t{1} << 16;

// The out-degree of each node, capped at 2^32 - 1. Neighbour sampling follows edges backwards, so a node with a high
// out-degree is drawn often.
using OutDegrees = std::vector<uint32_t>;

// Returns the rows by falling out-degree; rows with equal degrees keep their order.
std::vector<NodeId> OrderByDegree(const OutDegrees& degrees);

// A function that passes over all edges once. It calls visit(node, sources) for each node with in-edges, in rising
// order of nodes. `sources` holds the in-neighbours of the node, sorted; they may repeat. If there are more than
// kMostAsked in-neighbours, the function may pass only the first kMostAsked.
using EdgeLists =
    std::function<absl::Status(const std::function<void(NodeId node, std::span<const NodeId> sources)>& visit)>;

// Returns the rows ordered by communities of at most 4,096 nodes. Within such a community, rows are ordered by
// smaller communities of at most 64 nodes, then by falling out-degree, then by row. Communities are ordered by their
// labels. At first, each node's label is its own row.
// Each level is a label propagation. A node takes the most frequent label of its in-neighbours. It ignores labels of
// other communities that are full. On a tie it keeps its own label if that is one of the most frequent labels.
// Otherwise it takes the smallest of the most frequent labels. A level makes at most five passes over all edges. It
// stops earlier after a pass in which less than a hundredth of the nodes changed their label. The result is
// deterministic.
// Sources: Raghavan, Albert and Kumara 2007 (label propagation); Meyerhenke, Sanders and Schulz 2014, "Partitioning
// complex networks via size-constrained clustering"; Boldi, Rosa, Santini and Vigna 2011, "Layered label propagation"
// (one order out of several sizes of clusters). Errors: those of `edges`.
absl::StatusOr<std::vector<NodeId>> OrderByCommunity(const OutDegrees& degrees, const EdgeLists& edges);

// Renumbers the ends of sorted edges, and then sorts the edges again.
// Threads: one at a time; sorts on several threads itself.
// Memory: sorting.memory_bytes, and kOrderBytesPerNode per node. Disk: one more copy of the edges, in a file without
// a name.
struct RenumberEdgesOptions {
  NodeOrder order = NodeOrder::kNone;  // must not be kNone
  uint64_t nodes = 0;                  // larger than every row
  bool coalesce = false;               // repeated edges will be merged later, so they count once
};

// Moves the edges of `sorted`, which must be finished, to a new sorter with the options `sorting`. Returns the new
// sorter, finished, and sets `renumbering`. Edges with equal keys keep their order. The memory of `sorted` is
// released before the new sorter takes memory. Errors: those of the disk; Cancelled.
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

// Takes rows of equal length in the order of the source, keeps them in a file without a name, and returns them in the
// order of the store.
// Threads: one at a time. Memory: memory_bytes, and one row for each part of the file.
// If rows are renumbered, each row is written to disk and read back once, in batches. The file is divided into parts.
// Each part is small enough to be read into half of the memory. The other half holds the write buffers of all parts.
struct RowSpoolOptions {
  std::filesystem::path directory;
  uint64_t rows = 0, row_bytes = 0;
  uint64_t memory_bytes = 0;
};

class RowSpool {
 public:
  // Borrows the renumbering, which must be none() or cover options.rows rows.
  static absl::StatusOr<RowSpool> Create(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop);

  // Appends the next rows; `rows` must hold whole rows. Errors: those of the disk; Cancelled.
  absl::Status Append(std::span<const std::byte> rows);
  // Call it once, after the last row. Passes all rows to `take` in the store's order, some at a time.
  absl::Status Drain(const std::function<absl::Status(std::span<const std::byte> rows)>& take);

 private:
  RowSpool(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop, NamelessFile file);
  // Part p holds the store's rows from p * rows_of_part_ on, as records. A record is the row's number in the store,
  // followed by the row.
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
  std::vector<Part> parts_;  // empty if rows are not renumbered
  uint64_t appended_ = 0;
};

}  // namespace permafrost::data
