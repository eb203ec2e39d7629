// Tells what a job reads of its dataset: the features that nodes begin with (spec::NodeInputs), which the dataset has
// or the server makes. It also tells which graph-level model a set of graphs needs, and whether labels and splits
// suit the job.
// Threads: thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "spec/model.h"
#include "spec/train_options.h"

namespace permafrost::train {

// Resolves kAuto for a job on this large graph. Returns any other value unchanged.
spec::NodeInputs NodeInputsOf(spec::NodeInputs inputs, const data::GraphSummary& summary);

// Returns the dataset with the node features that the options name: the dataset itself, or a view with made features
// (data/store/other_features.h). kAuto means NodeInputsOf for one large graph. For a set, kAuto means the set's own
// features; if the set has none, nodes have no features. Errors: DataLoss.
data::GraphSummary WithNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(const spec::ModelOptions& model,
                                                                  std::shared_ptr<const data::Graph> graph);

data::GraphSetSummary WithNodeInputs(spec::NodeInputs inputs, const data::GraphSetSummary& summary);
absl::StatusOr<std::shared_ptr<const data::GraphSet>> WithNodeInputs(spec::NodeInputs inputs,
                                                                     std::shared_ptr<const data::GraphSet> set);

// Returns a line for the job's log if nodes begin with something other than features; otherwise "".
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
// For a set, the line also warns if the model cannot tell nodes apart.
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSetSummary& summary);

// Adds to `input` what an encoder must know of the features. Integer columns are categories, except that a program
// reads them unchanged. `table` names the features in messages, e.g. "node feature". Adds a violation of `field` for
// an integer column that cannot be categories.
void AddEncoderInput(const spec::ModelOptions& model, std::string_view table, const data::FeatureSummary& features,
                     std::string_view field, Violations& violations, nn::EncoderInput& input);

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const spec::TrainOptions& options,
                                                    const data::GraphSetSummary& stored, std::string_view prefix);

// Returns a violation if no graph (or node) of the train split has a label, since the loss would then have no
// gradient. Errors: DataLoss.
absl::Status CheckTrainLabels(const data::GraphSet& set, std::string_view prefix);
absl::Status CheckTrainLabels(const data::Graph& graph, std::string_view prefix);

// Returns a violation if a label is neither 0 nor 1, since the loss bce would then have no lower bound. Errors:
// DataLoss.
absl::Status CheckBinary(const data::GraphSet& set, std::string_view prefix);

// Returns a line for a job's user about the consequences of having no rows to validate on. `rows` names them, e.g.
// "graphs".
std::string NoteOfNoValidation(std::string_view rows);

// Returns statistics that bound the sizes of the train split. With cross-validation they are those of the whole set,
// and otherwise those of the split. Adds a violation if there are more folds than graphs.
const data::SizeStatistics& TrainSizes(const spec::TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
