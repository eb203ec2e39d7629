// Determines what a job reads from its dataset. A job's node features (spec::NodeInputs) come from the dataset or are
// made by the server. Also determines the graph-level model for a set of graphs, and checks labels and splits.
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

// Returns the dataset with the node features that the options name. This is the dataset itself, or a view whose
// features the server makes (data/store/other_features.h). For one large graph, kAuto means the result of
// NodeInputsOf. For a set, kAuto means the set's own features; if the set has none, nodes have no features. Errors:
// DataLoss.
data::GraphSummary WithNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(const spec::ModelOptions& model,
                                                                  std::shared_ptr<const data::Graph> graph);

data::GraphSetSummary WithNodeInputs(spec::NodeInputs inputs, const data::GraphSetSummary& summary);
absl::StatusOr<std::shared_ptr<const data::GraphSet>> WithNodeInputs(spec::NodeInputs inputs,
                                                                     std::shared_ptr<const data::GraphSet> set);

// Returns a line for the job's log if the model's node inputs are not the dataset's features; otherwise "".
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary);
// For a set, the line also warns if the model cannot tell nodes apart.
std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSetSummary& summary);

// Adds to `input` what an encoder must know of the features. Integer columns are categories for our own models; a
// program reads them unchanged. `table` names the features in messages, e.g. "node feature". If an integer column
// cannot be categories, adds a violation of `field`.
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

// Returns a line for the job's user about what changes if the validation split is empty. `rows` names what a split
// consists of, e.g. "graphs".
std::string NoteOfNoValidation(std::string_view rows);

// Returns statistics that bound the sizes of the train split. With cross-validation, returns the statistics of the
// whole set, and otherwise those of the split itself. Adds a violation if there are more folds than graphs.
const data::SizeStatistics& TrainSizes(const spec::TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
