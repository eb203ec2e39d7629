// Makes the view of a dataset that an evaluation of trained weights reads: the rows to evaluate, with the sizes and
// ranges that the model was made for.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::train {

// Returns Ok if a model that these options made for the dataset `trained` can be given the rows of `own`. What the
// model reads of nodes and edges must have as many columns, weights if it reads weights, and only categories that it
// knows. If `own` has labels and the job predicts them, it must have as many targets. For a loss over classes its
// labels must be among the model's classes. Otherwise returns InvalidArgument with violations of `field`.
absl::Status CheckKnows(const data::ImportedSummary& trained, const data::ImportedSummary& own,
                        const spec::TrainOptions& options, std::string_view field);

// Returns true if any row has a label.
bool HasLabels(const data::ImportedSummary& summary);

// Returns the split that the rows are evaluated as. Validation and test rows keep their own split, so that samples are
// drawn as the job's evaluation drew them. Train rows and all rows are evaluated as the test split.
data::Split EvaluatedAs(EvaluatedRows rows);

// Returns the dataset with the rows as its train split and as the split of EvaluatedAs; tasks read what they need of
// both. Its summary describes features and labels as `trained` does. If `trained` has another number of targets, all
// labels of the rows are missing. A set is divided by `folds` first. Errors: InvalidArgument if there are no such
// rows; DataLoss.
absl::StatusOr<data::OpenedDataset> OnlyRows(const data::OpenedDataset& dataset, EvaluatedRows rows,
                                             const spec::CrossValidation& folds, const data::ImportedSummary& trained);

// Returns one large graph whose summary describes features and labels as `trained` does, which must be of one large
// graph too. The rows are the graph's own.
data::OpenedDataset AsTrained(const data::OpenedDataset& dataset, const data::ImportedSummary& trained);

}  // namespace permafrost::train
