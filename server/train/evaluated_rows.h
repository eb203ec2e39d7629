// What an evaluation of trained weights sees of a dataset: the rows that it is over, and sizes and ranges as the model
// was made for them.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "train/options.h"
#include "train/runner.h"

namespace permafrost::train {

// Ok if a model that was made for the dataset `trained` can be given the rows of `own`: columns and targets are as
// many, categories and classes are among those that it knows. Else InvalidArgument with violations of `field`.
absl::Status CheckKnows(const data::ImportedSummary& trained, const data::ImportedSummary& own, std::string_view field);

// The dataset with the rows as its train and its test split, of which tasks read what they need. What the summary says
// of features and labels is that of `trained`, which it goes with. Folds of the options are those of the dataset.
// Errors: InvalidArgument where there are no such rows; DataLoss.
absl::StatusOr<data::OpenedDataset> OnlyRows(const data::OpenedDataset& dataset, EvaluatedRows rows,
                                             const data::CrossValidation& folds, const data::ImportedSummary& trained);

}  // namespace permafrost::train
