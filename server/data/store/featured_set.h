// A set of graphs as another has it, with node features that are made in memory in place of its own.
// Threads: as GraphSet.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "data/store/featured_graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Features of a set's nodes: kDegree, one column of categories 0..kDegreeCap, whatever the set's degrees are, so that
// weights trained on one set serve another; or kConstant. Nodes of a set have no columns of their own.
GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary);

// Keeps `set` alive. Takes 4 bytes a node. Errors: DataLoss (all edges are read for kDegree).
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features);

}  // namespace permafrost::data
