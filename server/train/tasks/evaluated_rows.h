// The view of a dataset that an evaluation of trained weights gets: its rows, with the sizes and ranges that the model
// was made for.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::train {

// Ok if a model that was made for the dataset `trained`, by these options, can be given the rows of `own`: what it
// reads of nodes and edges has as many columns, weights where it reads them, and categories among those that it knows.
// If own has labels and the job predicts them, there must be as many targets, and for a loss over classes the labels
// must be among its classes. Else InvalidArgument with violations of `field`.
absl::Status CheckKnows(const data::ImportedSummary& trained, const data::ImportedSummary& own,
                        const spec::TrainOptions& options, std::string_view field);

// True if any row has a label.
bool HasLabels(const data::ImportedSummary& summary);

// The split that the rows are evaluated as: their own, so that samples are drawn as the job's evaluation drew them;
// those of the train split, and all, as the test split.
data::Split EvaluatedAs(EvaluatedRows rows);

// The dataset with the rows as its train split and as that of EvaluatedAs, of which tasks read what they need. Its
// summary describes features and labels as `trained` does; if `trained` has other targets, the labels of the rows are
// all missing. Folds of the options are those of the dataset. Errors: InvalidArgument where there are no such rows;
// DataLoss.
absl::StatusOr<data::OpenedDataset> OnlyRows(const data::OpenedDataset& dataset, EvaluatedRows rows,
                                             const spec::CrossValidation& folds, const data::ImportedSummary& trained);

// One large graph whose summary says of features and labels what that of `trained` does, also of one large graph; its
// rows are its own.
data::OpenedDataset AsTrained(const data::OpenedDataset& dataset, const data::ImportedSummary& trained);

}  // namespace permafrost::train
