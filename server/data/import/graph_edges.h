// The edges of one large graph, from their source into the store: sorted, with inverses, both ways where asked for.
// Threads: one at a time; sorts over several by itself.
// Memory: EdgesPlan::memory_bytes, and 8 bytes a node, 16 where nodes are renumbered, which limits.memory_bytes must
// hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "data/import/edge_source.h"
#include "data/import/renumbering.h"
#include "data/source/import_monitor.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

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
