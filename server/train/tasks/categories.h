// Tells what a job's weights know about the categories of its dataset, and gives the weights another dataset.
// Categories then match by the source's values, whatever numbers the two imports gave them.
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

// In the metadata of a weights' file: the tables of what the model reads, CategoriesToJson. Absent where an older
// version made the weights, or imported their dataset.
inline constexpr char kCategoriesKey[] = "permafrost.categories";

// Returns only the tables that a model with these options has weights for. Features that the model does not read, or
// that are made, have none. Classes stay where its loss is over classes or where they are renumbered.
data::Categories CategoriesRead(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                data::Categories all);
// True if the model reads columns that are categories. An older version's dataset has no tables for these.
bool ReadsCategories(const spec::TrainOptions& options, const data::ImportedSummary& summary);

// Tells how EvaluateWeights reads a dataset other than the one that the weights were trained on.
struct CategoryPass {
  const spec::TrainOptions& options;
  const data::OpenedDataset& dataset;
  const std::optional<data::Categories>& known;  // of the weights
  // Summary of the dataset that the weights were trained on, where it is still known.
  const std::optional<data::ImportedSummary>& trained_on;
  // A value that the weights do not know is one that contributes nothing, rather than refused.
  bool allow_unknown = false;
  bool predictions = false;  // labels need not be known
  uint64_t process_limit = 0;
};
struct TranslatedDataset {
  data::OpenedDataset dataset;
  // Summary of the dataset that the weights were trained on, with the ranges that the model is made for now.
  data::ImportedSummary trained;
  // Tables of weights with one row more than the weights have: zeros, for unknown values.
  std::vector<std::string> zero_rows;
  // A line for each column with unknown values.
  std::vector<std::string> notes;
};
// Adds a violation of "dataset" for what the weights do not know, or cannot be told of; the dataset is then of no use.
// Errors: DataLoss; ResourceExhausted.
absl::StatusOr<TranslatedDataset> TranslateCategories(const CategoryPass& pass, Violations& violations);

// Counts the rows of weights that a job with other categories began with.
struct MovedRows {
  int64_t taken = 0, fresh = 0;
  bool other_classes = false;  // of a loss with one output, whose labels mean something else
};
// Rewrites the weights in `file`, which know `from`, for a model that reads `to`: a row of weights goes where its value
// is, and those of new values are the model's own. Errors: InvalidArgument where a column is of another kind.
absl::StatusOr<MovedRows> MoveRows(const data::Categories& from, const data::Categories& to,
                                   const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file);

}  // namespace permafrost::train
