
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// A graph as another has it, with node features that are made in memory in place of its own.
// Threads: as Graph.

// The ways to make a node's row of features.
enum class MadeFeatures {
  kOwnColumn,  // 1 in a column of its own
  kDegree,     // 1 in the column, of kDegreeCap + 1, of its in-edges' number, or of kDegreeCap where they are more
  kOwnDegree,  // the same, without the columns beyond the graph's largest number of in-edges
  kConstant    // one column of 1
};
inline constexpr int64_t kDegreeCap = 255;

// Returns the summary of such a graph, from a graph's own summary.
GraphSummary SummaryWith(MadeFeatures features, GraphSummary summary);

// Keeps `graph` alive. Takes 12 bytes a node, or 4 for kConstant. Errors: DataLoss (offsets are read for degrees).
absl::StatusOr<std::shared_ptr<const Graph>> WithFeatures(const std::shared_ptr<const Graph>& graph,
                                                          MadeFeatures features);

// A set of graphs as another has it, with node features that are made in memory in place of its own.
// Threads: as GraphSet.

// Features of a set's nodes: kDegree, one column of categories 0..kDegreeCap, whatever the set's degrees are, so that
// weights trained on one set serve another; or kConstant. Nodes of a set have no columns of their own.
GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary);

// Keeps `set` alive. Takes 4 bytes a node. Errors: DataLoss (all edges are read for kDegree).
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features);

}  // namespace permafrost::data
