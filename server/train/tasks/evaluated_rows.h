// Makes the view of a dataset that an evaluation of trained weights reads. The view has the rows to evaluate, and its
// summary has the columns and ranges that the model was made for.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::train {

// Checks that a model, made by these options for the dataset `trained`, can evaluate the rows of `own`. The features
// that the model reads must have as many columns as in `trained`, and only categories that the model knows. If the
// model reads edge weights, `own` must have them. If `own` has labels and the job predicts them, it must have as many
// targets as `trained`. For a loss over classes, the labels of `own` must be among the model's classes. Errors:
// InvalidArgument with violations of `field`.
absl::Status CheckKnows(const data::ImportedSummary& trained, const data::ImportedSummary& own,
                        const spec::TrainOptions& options, std::string_view field);

// Returns true if any row has a label.
bool HasLabels(const data::ImportedSummary& summary);

// Returns the split under which the rows are evaluated. Validation and test rows keep their own split, so that they
// get the same samples as in the job's own evaluation. kTrain and kAll rows are evaluated as the test split.
data::Split EvaluatedAs(EvaluatedRows rows);

// Returns a view of the dataset in which the train split and the split of EvaluatedAs both consist of the rows
// `rows`. Tasks read both splits. The view's summary describes features and labels as `trained` does. If `trained`
// has another number of targets, all labels are missing. A set is first divided by `folds`. Errors: InvalidArgument
// if the dataset has none of these rows; DataLoss.
absl::StatusOr<data::OpenedDataset> OnlyRows(const data::OpenedDataset& dataset, EvaluatedRows rows,
                                             const spec::CrossValidation& folds, const data::ImportedSummary& trained);

// Returns a view of one large graph whose summary describes features and labels as `trained` does. `trained` must
// describe one large graph too. The rows of the graph are unchanged.
data::OpenedDataset AsTrained(const data::OpenedDataset& dataset, const data::ImportedSummary& trained);

}  // namespace permafrost::train
