// The edges of one large graph, from their source into the store: sorted, with inverses, both ways where asked for.
// Threads: one at a time; sorts over several by itself.
// Memory: EdgesPlan::memory_bytes, and 8 bytes a node, 16 where nodes are renumbered, which limits.memory_bytes must
// hold.
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

// Gives the edges of one large graph, some at a time.
// Threads: one at a time.
template <class Record>
class EdgeSource {
 public:
  virtual ~EdgeSource() = default;
  // Replaces `edges` by the next ones, in the order of the source, each keyed by (target, source); false at the end.
  virtual absl::StatusOr<bool> Next(std::vector<Record>& edges) = 0;
};

// Tells whether a list of edges has both directions of each: every (u, v), u != v, as often as (v, u). Equal edges
// count; a self-loop is its own inverse.
// The list is read once, in any order, in constant memory. Each edge adds a 128-bit hash of its unordered ends to one
// of two sums, by its direction; then the sums are compared. A list without both directions passes by a chance below
// 2^-80. The hash has a random key that this process chose, so that no list can be made to pass.
// Threads: one at a time.
class EdgeSymmetry {
 public:
  // values: whether weights and timestamps of the records are compared too.
  explicit EdgeSymmetry(bool values);

  template <class Record>
  void Add(std::span<const Record> edges);

  // True if the edges so far have both directions.
  bool ends_match() const { return ends_[0] == ends_[1]; }
  // True if both directions also have equal weights and timestamps.
  bool values_match() const { return ends_match() && values_[0] == values_[1]; }

 private:
  __extension__ using Wide = unsigned __int128;
  // Two sums: over the edges from a smaller to a larger node, and over the others.
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
  uint64_t least_nodes = 0;  // more where the edges have larger rows
  // The fields of the records to keep; the records must have them. edge_ids: the rows of the source.
  bool weights = false, timestamps = false, edge_ids = false;
};

// The line that tells what InverseEdges::kAuto did.
std::string InverseEdgesNote(bool added);
// Bytes that one large graph's import may take in all for sorting and buffers.
uint64_t ImportMemory(const ImportOptions& options, const ImportLimits& limits);
// Ok where the offsets of `nodes`, or what their order takes, fit limits.memory_bytes; else ResourceExhausted, `source`
// naming where nodes are from.
absl::Status CheckNodes(std::string_view source, uint64_t nodes, const ImportLimits& limits,
                        NodeOrder order = NodeOrder::kNone);

// Writes the sections of edges, and sets the fields of `summary` that follow from them: nodes, edges, directions,
// degrees. InverseEdges:: kAuto adds inverses unless the source lists both directions of every edge; where these differ
// in weights or timestamps the graph is directed. If options.order asks for another order of nodes, it is found here
// and set in `renumbering`: all that follows must be written by it.
template <class Record>
absl::Status WriteEdges(EdgeSource<Record>& source, const EdgesPlan& plan, ImportMonitor& monitor, GraphWriter& writer,
                        GraphSummary& summary, Renumbering& renumbering);

extern template absl::Status WriteEdges(EdgeSource<PlainEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);
extern template absl::Status WriteEdges(EdgeSource<WeightedEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);
extern template absl::Status WriteEdges(EdgeSource<FullEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                        GraphSummary&, Renumbering&);

// Calls run.operator()<Record>() with the narrowest record that holds what the plan keeps.
template <class Run>
auto WithRecord(const EdgesPlan& plan, const Run& run) {
  if (plan.timestamps || plan.edge_ids) return run.template operator()<FullEdge>();
  return plan.weights ? run.template operator()<WeightedEdge>() : run.template operator()<PlainEdge>();
}

}  // namespace permafrost::data
