// What the nodes of one large graph begin with, as a job's options say (nn::NodeInputs): the graph's own features, or
// such as are made. Threads: pure functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "nn/options.h"

namespace permafrost::train {

// What kAuto stands for in a job on this graph; others are themselves.
nn::NodeInputs NodeInputsOf(nn::NodeInputs inputs, const data::GraphSummary& summary);

// The graph with the features that `inputs`, never kAuto, says: itself, or one with made ones
// (data/store/featured_graph.h).
data::GraphSummary WithNodeInputs(nn::NodeInputs inputs, const data::GraphSummary& summary);
absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(nn::NodeInputs inputs,
                                                                  std::shared_ptr<const data::Graph> graph);

// One line of a job whose nodes begin with something else than features; empty: with features.
std::string TellNodeInputs(nn::NodeInputs inputs, const data::GraphSummary& summary);

}  // namespace permafrost::train
