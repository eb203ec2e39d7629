// Lists the categories that a job's weights were trained on, and renumbers another dataset's categories to match
// them. Two categories match if they have the same value in the source; the numbers that imports gave them do not
// count.
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

// Returns the tables of `all` for which a model with these options has weights. Leaves out the tables of features
// that the model does not read, and of features that the server makes. Keeps the table of classes if the loss is over
// classes, or if the classes are renumbered.
data::Categories CategoriesRead(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                data::Categories all);
// Returns true if the model reads columns of categories. If an older version imported the dataset, these columns have
// no category tables.
bool ReadsCategories(const spec::TrainOptions& options, const data::ImportedSummary& summary);

// Tells how EvaluateWeights reads a dataset other than the one that the weights were trained on.
struct CategoryPass {
  const spec::TrainOptions& options;
  const data::OpenedDataset& dataset;
  const std::optional<data::Categories>& known;  // categories that the weights were trained on, if known
  // Summary of the dataset that the weights were trained on, if it is still known.
  const std::optional<data::ImportedSummary>& trained_on;
  // If true, a category that the weights do not know contributes nothing. If false, such a category is a violation.
  bool allow_unknown = false;
  // If true, predictions are requested, and the dataset's labels may be classes that the weights do not know.
  bool predictions = false;
  uint64_t process_limit = 0;
};
struct TranslatedDataset {
  data::OpenedDataset dataset;
  // Summary of the dataset that the weights were trained on, with the category ranges for which the model is now
  // made.
  data::ImportedSummary trained;
  // The names of the weight tables that get one more row, of zeros, for unknown categories.
  std::vector<std::string> zero_rows;
  // A line for each column with unknown categories.
  std::vector<std::string> notes;
};
// Translates the dataset's categories to those of the weights. If the weights do not know some categories, or cannot
// be compared with them, adds a violation of "dataset". The returned dataset must then not be used. Errors: DataLoss;
// ResourceExhausted.
absl::StatusOr<TranslatedDataset> TranslateCategories(const CategoryPass& pass, Violations& violations);

// Counts of MoveRows: the rows taken from the old weights, and the rows initialised afresh.
struct MovedRows {
  int64_t taken = 0, fresh = 0;
  bool other_classes = false;  // the loss has one output, and its labels have another meaning now
};
// Rewrites the weights in `file`, trained on the categories `from`, for a model that reads the categories `to`. The
// row of each value moves to the place of that value in `to`. For a value that `from` lacks, the row is copied from
// `model`. Errors: InvalidArgument if a column is one-hot, or holds degrees, in only one of `from` and `to`.
absl::StatusOr<MovedRows> MoveRows(const data::Categories& from, const data::Categories& to,
                                   const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file);

}  // namespace permafrost::train
