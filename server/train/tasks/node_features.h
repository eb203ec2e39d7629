// The features that nodes begin with, as a job's options say (spec::NodeInputs): the dataset's own
// features, or such as are made. Threads: pure functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "spec/model.h"

namespace permafrost::train {

// Returns what kAuto stands for in a job on this large graph; any other value is itself.
spec::NodeInputs NodeInputsOf(spec::NodeInputs inputs, const data::GraphSummary& summary);

// The dataset with the features that the options say: itself, or one with made ones (data/store/other_features.h).
// kAuto: of one large graph as NodeInputsOf; of a set its own, and none where it has none. Errors:
// DataLoss.
data::GraphSummary WithNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(const spec::ModelOptions& model,
                                                                  std::shared_ptr<const data::Graph> graph);

data::GraphSetSummary WithNodeInputs(spec::NodeInputs inputs, const data::GraphSetSummary& summary);
absl::StatusOr<std::shared_ptr<const data::GraphSet>> WithNodeInputs(spec::NodeInputs inputs,
                                                                     std::shared_ptr<const data::GraphSet> set);

// One line of a job whose nodes begin with something else than features; empty: with features.
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
// For a set the line also warns if the model cannot tell its nodes from each other.
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSetSummary& summary);

}  // namespace permafrost::train
