// Writes the edges of one large graph from their source into the store, grouped by target. Adds inverse edges if
// needed. If the graph is not symmetric and options.keep_out_edges is set, also writes the edges grouped by source.
// Threads: one at a time; sorts on several threads itself.
// Memory: EdgesPlan::memory_bytes, plus 8 bytes per node, or 16 if nodes are renumbered. The bytes for nodes must fit
// in limits.memory_bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/sort/edge_sorter.h"
#include "data/source/import_options.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// Yields the edges of one large graph, some at a time.
// Threads: one at a time.
template <class Record>
class EdgeSource {
 public:
  virtual ~EdgeSource() = default;
  // Replaces `edges` by the source's next edges, in its order. The key of each edge is (target, source). Returns
  // false at the end.
  virtual absl::StatusOr<bool> Next(std::vector<Record>& edges) = 0;
};

// Tells whether a list of edges has both directions of every edge: each (u, v) with u != v occurs as often as (v, u).
// Repeated edges count separately. A self-loop is its own inverse.
// The list is read once, in any order, in constant memory. Each edge adds a 128-bit hash of its unordered ends to one
// of two sums, chosen by its direction. At the end the sums are compared. A list without both directions passes with
// a probability below 2^-80. The process chooses a random key for the hash, so nobody can construct a list that
// passes.
// Threads: one at a time.
class EdgeSymmetry {
 public:
  // If `values` is true, the weights and timestamps of the records are compared too.
  explicit EdgeSymmetry(bool values);

  template <class Record>
  void Add(std::span<const Record> edges);

  // Returns true if the edges added so far have both directions.
  bool ends_match() const { return ends_[0] == ends_[1]; }
  // Returns true if ends_match() is true, and weights and timestamps are equal in both directions.
  bool values_match() const { return ends_match() && values_[0] == values_[1]; }

 private:
  __extension__ using Wide = unsigned __int128;
  // Two sums, one per direction. An edge counts in the first sum if its key has the smaller node first.
  using Sums = std::array<Wide, 2>;

  const bool compares_values_;
  uint64_t key_ = 0;
  Sums ends_{}, values_{};
};

extern template void EdgeSymmetry::Add(std::span<const PlainEdge>);
extern template void EdgeSymmetry::Add(std::span<const WeightedEdge>);
extern template void EdgeSymmetry::Add(std::span<const FullEdge>);

struct EdgesPlan {
  const ImportOptions& options;
  std::filesystem::path directory;  // for temporary files
  uint64_t memory_bytes = 0;
  uint64_t least_nodes = 0;  // the number of nodes is at least this, and larger than every row that an edge names
  // True for each field of the records that is stored; the record type must have the field. The id of an edge is its
  // row in the source.
  bool weights = false, timestamps = false, edge_ids = false;
};

// Returns the note for the user about whether InverseEdges::kAuto added inverse edges, and why.
std::string InverseEdgesNote(bool added);
// Returns the bytes that the import of one large graph may use in total for sorting and buffers.
uint64_t ImportMemory(const ImportOptions& options, const ImportLimits& limits);
// Checks that limits.memory_bytes has room for the offsets of `nodes` nodes. If `order` is not kNone, checks instead
// that it has room for finding the order. Errors: ResourceExhausted. Its message begins with `source`, which says
// where the number of nodes comes from.
absl::Status CheckNodes(std::string_view source, uint64_t nodes, const ImportLimits& limits,
                        NodeOrder order = NodeOrder::kNone);

// Writes the sections of edges, and sets the fields of `summary` that follow from the edges: nodes, edges,
// directions, degrees. InverseEdges::kAuto adds inverses unless the source lists both directions of every edge. If
// the source lists both, but with different weights or timestamps, the graph is directed. If options.order asks for
// another order of nodes, finds this order and sets `renumbering` to it. All sections written afterwards must use
// `renumbering`.
template <class Record>
absl::Status WriteEdges(EdgeSource<Record>& source, const EdgesPlan& plan, ImportMonitor& monitor, GraphWriter& writer,
                        GraphSummary& summary, Renumbering& renumbering);

extern template absl::Status WriteEdges(EdgeSource<PlainEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);
extern template absl::Status WriteEdges(EdgeSource<WeightedEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);
extern template absl::Status WriteEdges(EdgeSource<FullEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);

// Calls run.operator()<Record>() with the narrowest record type that holds all fields of the plan.
template <class Run>
auto WithRecord(const EdgesPlan& plan, const Run& run) {
  if (plan.timestamps || plan.edge_ids) return run.template operator()<FullEdge>();
  return plan.weights ? run.template operator()<WeightedEdge>() : run.template operator()<PlainEdge>();
}

}  // namespace permafrost::data
