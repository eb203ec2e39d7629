// Tells what a job reads of its dataset: the features that its nodes begin with (spec::NodeInputs), the dataset's own
// or such as are made; the graph-level model that a set of graphs needs; and whether labels and splits serve the job.
// Threads: safe anywhere.
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

// Tells an encoder what it must know of features. Integers are categories; a program reads them unchanged. `table`:
// "node feature". A violation of `field` names a column whose integers are no categories.
void AddEncoderInput(const spec::ModelOptions& model, std::string_view table, const data::FeatureSummary& features,
                     std::string_view field, Violations& violations, nn::EncoderInput& input);

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const spec::TrainOptions& options,
                                                    const data::GraphSetSummary& stored, std::string_view prefix);

// A violation where no graph, or no node, of the train split has a label: no loss would have a gradient. Errors:
// DataLoss.
absl::Status CheckTrainLabels(const data::GraphSet& set, std::string_view prefix);
absl::Status CheckTrainLabels(const data::Graph& graph, std::string_view prefix);

// A violation where a label is neither 0 nor 1: the loss bce would have no lower bound. Errors: DataLoss.
absl::Status CheckBinary(const data::GraphSet& set, std::string_view prefix);

// Returns the line that tells a job's user what follows where there are no rows to validate on. rows: "graphs".
std::string NoteOfNoValidation(std::string_view rows);

// Sizes that bound those of the train split: its own, or with folds those of the whole set. Adds a violation for more
// folds than graphs.
const data::SizeStatistics& TrainSizes(const spec::TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
