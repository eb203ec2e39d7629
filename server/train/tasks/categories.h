// Tells what a job's weights know about the categories of its dataset, and translates another dataset's categories
// for the weights. Categories match by their values in the source, not by the numbers that an import gave them.
// Threads: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/store/categories.h"
#include "data/store/dataset.h"
#include "nn/tensor_set.h"
#include "spec/train_options.h"

namespace permafrost::train {

// A key in the metadata of a weights file. Its value holds the category tables that the model reads
// (CategoriesToJson). The key is absent if an older version made the weights or imported their dataset.
inline constexpr char kCategoriesKey[] = "permafrost.categories";

// Returns those tables of `all` for which a model with these options has weights. Leaves out tables of features that
// the model does not read, or that the server makes. Keeps the table of classes if the loss is over classes, or if
// the classes are renumbered.
data::Categories CategoriesRead(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                data::Categories all);
// Returns true if the model reads columns that are categories. A dataset that an older version imported has no tables
// for them.
bool ReadsCategories(const spec::TrainOptions& options, const data::ImportedSummary& summary);

// Tells how EvaluateWeights reads a dataset other than the one that the weights were trained on.
struct CategoryPass {
  const spec::TrainOptions& options;
  const data::OpenedDataset& dataset;
  const std::optional<data::Categories>& known;  // what the weights know
  // Summary of the dataset that the weights were trained on, if it is still known.
  const std::optional<data::ImportedSummary>& trained_on;
  // If true, a category that the weights do not know contributes nothing. If false, it is refused.
  bool allow_unknown = false;
  bool predictions = false;  // whether predictions are requested; the weights then need not know the labels
  uint64_t process_limit = 0;
};
struct TranslatedDataset {
  data::OpenedDataset dataset;
  // Summary of the dataset that the weights were trained on, with the category ranges for which the model is now
  // made.
  data::ImportedSummary trained;
  // Names of the tables of weights to which one row of zeros is added. That row serves unknown categories.
  std::vector<std::string> zero_rows;
  // A line for each column with unknown categories.
  std::vector<std::string> notes;
};
// Translates the dataset's categories to those of the weights. Adds a violation of "dataset" for categories that the
// weights do not know or cannot be compared with; the returned dataset must then not be used. Errors: DataLoss;
// ResourceExhausted.
absl::StatusOr<TranslatedDataset> TranslateCategories(const CategoryPass& pass, Violations& violations);

// For a job that begins with weights trained on other categories: the number of rows taken from the old weights, and
// of rows initialised afresh.
struct MovedRows {
  int64_t taken = 0, fresh = 0;
  bool other_classes = false;  // the loss has one output, and its labels have another meaning now
};
// Rewrites the weights in `file`, trained on the categories `from`, for a model that reads the categories `to`. The
// row of each value moves to the place of that value in `to`. For a value that `from` lacks, the row is copied from
// `model`. Errors: InvalidArgument if a column is of another kind.
absl::StatusOr<MovedRows> MoveRows(const data::Categories& from, const data::Categories& to,
                                   const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file);

}  // namespace permafrost::train
