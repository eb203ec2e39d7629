// Tables that map the categories in a dataset's columns to the values in the dataset's source. They serve to
// translate the categories of one dataset into the categories of another. The store's file keeps the tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "data/store/types.h"

namespace permafrost::data {

class StoreFile;

// Label -1 of one dataset and label 7 of another may both be category 0. Therefore a job's weights are stored with
// the tables of its training dataset. With these tables, the categories of another dataset are matched by source
// values. Threads: value types and pure functions.

// If a column has more distinct values than this, its table keeps no values (CategoryTable::too_many).
inline constexpr int64_t kMaxCategoryValues = 1'000'000;

enum class CategoryOrigin : uint32_t {
  kColumn,  // an integer column of the source, unchanged
  kLabel,   // a label of the nodes or edges of a TUDataset
  kDegree,  // the number of edges that begin in a node
  kClass,   // the class that is to be predicted
};
inline constexpr EnumNames<CategoryOrigin, 4> kCategoryOriginNames{{{{CategoryOrigin::kColumn, "column"},
                                                                     {CategoryOrigin::kLabel, "label"},
                                                                     {CategoryOrigin::kDegree, "degree"},
                                                                     {CategoryOrigin::kClass, "class"}}}};

struct CategoryTable {
  CategoryOrigin origin = CategoryOrigin::kColumn;
  int64_t column = 0;   // the first feature column that this table is for
  int64_t columns = 0;  // number of one-hot columns, one for each category; 0 for a single column of integers
  // Category i stands for values[i] if `ranked` is true, else for base + i.
  bool ranked = false;
  int64_t base = 0;
  // True if the last of `values` also stands for every larger value.
  bool open_ended = false;
  // True if the column has more than kMaxCategoryValues values. `values` is then empty.
  bool too_many = false;
  std::vector<int64_t> values;  // the values that occur, rising

  bool one_hot() const { return columns > 0; }
  // True if the categories are one-hot columns, or are numbered differently from the source.
  bool renumbered() const { return ranked || base != 0 || one_hot(); }
  // Returns the number of one-hot columns if there are any. Otherwise returns one more than the largest category that
  // occurs, and at least 1.
  int64_t num_categories() const;
  // Returns the category of `value`, or nullopt if `value` does not occur.
  std::optional<int64_t> CategoryOf(int64_t value) const;
  bool operator==(const CategoryTable&) const = default;
};

// Holds the tables for the features of nodes or of edges. A column that belongs to no table holds numbers, not
// categories.
struct FeatureCategories {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::vector<CategoryTable> tables;  // in the order of their columns
  bool operator==(const FeatureCategories&) const = default;
};

struct Categories {
  FeatureCategories node, edge;
  // The table of the target's classes, if there is a target and its values are whole numbers.
  std::optional<CategoryTable> classes;
  bool operator==(const Categories&) const = default;
};

// Returns a name for messages: "label 1", "column 0", "degree". `place` is the table's index in
// FeatureCategories::tables.
std::string NameOfTable(const CategoryTable& table, size_t place);
// Returns the name of `value` for messages: "7", or "50 or more" if `value` also stands for all larger values.
std::string NameOfValue(const CategoryTable& table, int64_t value);

// Returns the first few values of the first tables, for people to read. A dataset's summary keeps this extract.
std::vector<CategorySummary> Summarize(const FeatureCategories& features);

std::string CategoriesToJson(const Categories& categories);
// Errors: DataLoss if a field is missing, of another type or out of order. The message names the field.
absl::StatusOr<Categories> CategoriesFromJson(std::string_view text);

// Translates the categories of one dataset's column into the categories of another dataset's column, by the source
// values of both. Threads: a value type; const methods are safe anywhere.
class CategoryMap {
 public:
  // Makes a map that changes no category.
  CategoryMap() = default;
  // Makes a map from the categories of `own` to those of `known`. Neither table may have more than kMaxCategoryValues
  // values.
  CategoryMap(const CategoryTable& own, const CategoryTable& known);

  // True if the map changes no category that occurs.
  bool as_they_stand() const { return as_they_stand_; }
  // Returns the values of `own` that `known` lacks, rising.
  const std::vector<int64_t>& unknown_values() const { return unknown_values_; }
  // Returns one more than the last category of `known`. Unless as_they_stand() is true, To returns this category for
  // unknown values and for categories that cannot occur.
  int64_t unknown() const { return unknown_; }
  int64_t To(int64_t category) const {
    if (as_they_stand_) return category;
    if (sparse_.empty()) {
      return category >= 0 && category < static_cast<int64_t>(dense_.size()) ? dense_[static_cast<size_t>(category)]
                                                                             : unknown_;
    }
    const auto found = sparse_.find(category);
    return found == sparse_.end() ? unknown_ : found->second;
  }

 private:
  bool as_they_stand_ = true;
  int64_t unknown_ = 0;
  std::vector<int64_t> unknown_values_;
  std::vector<int64_t> dense_;  // indexed by category of `own`; empty if sparse_ is used
  // Used if there are too many categories for dense_, or negative ones. Its keys are the categories that occur.
  std::unordered_map<int64_t, int64_t> sparse_;
};

// The sections of a store's file that hold the tables.
// Threads: pure functions.

// The texts of the sections kNumberedCategories and kSeenCategories. A text is empty if it would hold no table.
struct CategorySections {
  std::string numbered, seen;
};
CategorySections SectionsOf(const Categories& categories);

// Copies the types and widths of the features from `summary` (of a set or of a graph) into `categories`. Puts an
// extract of the tables into `summary` and sets summary.categories_known.
template <class Summary>
void TakeCategories(Categories& categories, Summary& summary) {
  for (const auto& [features, of_summary] :
       {std::pair(&categories.node, &summary.node_features), std::pair(&categories.edge, &summary.edge_features)}) {
    features->type = of_summary->type;
    features->width = of_summary->width;
    of_summary->categories = Summarize(*features);
  }
  summary.categories_known = true;
}

// Reads all tables of a file. `features` has the types and widths of the features, and no tables yet. Errors:
// DataLoss, naming the file and the section.
absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features);

}  // namespace permafrost::data
