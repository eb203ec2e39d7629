// Says what the categories of a dataset stand for in its source, translates those of one dataset to another's, and
// keeps them in a store's file.
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

// These tables say what the categories of a dataset's columns stand for in its source. A label of -1 in one dataset and
// a label of 7 in another may both be category 0. Weights keep the tables of the dataset that they were trained on, so
// that another dataset is read by the source's values.
// Threads: value types and pure functions.

// Columns with more different values than this are not categories, and their values are not kept.
inline constexpr int64_t kMaxCategoryValues = 1'000'000;

enum class CategoryOrigin : uint32_t {
  kColumn,  // an integer column of the source as it stands
  kLabel,   // a label of a TUDataset's nodes or edges
  kDegree,  // how many edges begin in a node
  kClass,   // the target
};
inline constexpr EnumNames<CategoryOrigin, 4> kCategoryOriginNames{{{{CategoryOrigin::kColumn, "column"},
                                                                     {CategoryOrigin::kLabel, "label"},
                                                                     {CategoryOrigin::kDegree, "degree"},
                                                                     {CategoryOrigin::kClass, "class"}}}};

struct CategoryTable {
  CategoryOrigin origin = CategoryOrigin::kColumn;
  int64_t column = 0;   // its first one in the table of features
  int64_t columns = 0;  // one-hot columns, one a category; 0: one column of integers
  // Category i stands for values[i] where `ranked`, else for base + i.
  bool ranked = false;
  int64_t base = 0;
  // The largest value stands for all larger ones too.
  bool open_ended = false;
  // True if there are more than kMaxCategoryValues values, of which none is kept.
  bool too_many = false;
  std::vector<int64_t> values;  // those that occur, rising

  bool one_hot() const { return columns > 0; }
  // True if the categories are columns, or have other numbers than in the source.
  bool renumbered() const { return ranked || base != 0 || one_hot(); }
  // One more than the largest category that occurs; at least 1.
  int64_t num_categories() const;
  // Returns the category of a value that occurs; nullopt for any other value.
  std::optional<int64_t> CategoryOf(int64_t value) const;
  bool operator==(const CategoryTable&) const = default;
};

// Holds the tables for the features of nodes or of edges. A column in no table is no category but a number.
struct FeatureCategories {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::vector<CategoryTable> tables;  // by column, rising
  bool operator==(const FeatureCategories&) const = default;
};

struct Categories {
  FeatureCategories node, edge;
  // The table for the target, if there is one and it is whole numbers.
  std::optional<CategoryTable> classes;
  bool operator==(const Categories&) const = default;
};

// Names the table at `place` among those of its kind, for messages: "label 1", "column 0", "degree".
std::string NameOfTable(const CategoryTable& table, size_t place);
// Names the value for messages: "7", or "50 or more" if it stands for all larger ones too.
std::string NameOfValue(const CategoryTable& table, int64_t value);

// A few of the tables' values for people, as the summary of a dataset keeps them.
std::vector<CategorySummary> Summarize(const FeatureCategories& features);

std::string CategoriesToJson(const Categories& categories);
// Errors: DataLoss naming what is missing, of another type or out of order.
absl::StatusOr<Categories> CategoriesFromJson(std::string_view text);

// Reads the categories of one dataset's column as those of another's, by the source's values.
// Threads: values; const methods are safe anywhere.
class CategoryMap {
 public:
  // Leaves every category as it stands.
  CategoryMap() = default;
  // Maps the categories of `own` to those of `known`. Neither may have more than kMaxCategoryValues values.
  CategoryMap(const CategoryTable& own, const CategoryTable& known);

  // True if every category that occurs stays what it is.
  bool as_they_stand() const { return as_they_stand_; }
  // The values of `own` that `known` lacks, rising.
  const std::vector<int64_t>& unknown_values() const { return unknown_values_; }
  // The category for unknown values and impossible categories: one more than the last category of `known`.
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
  std::vector<int64_t> dense_;                   // by own category, where those are few
  std::unordered_map<int64_t, int64_t> sparse_;  // else of those that occur
};

// Categories as the sections of a store's file.
// Threads: pure functions.

// The texts of kNumberedCategories and kSeenCategories; empty where there is no such table.
struct CategorySections {
  std::string numbered, seen;
};
CategorySections SectionsOf(const Categories& categories);

// Makes the types and widths of the features those of `summary`, of either kind, and tells it of the tables.
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

// All tables of a file, beside features of these types and widths, which have no tables yet. Errors: DataLoss naming
// the file and the section.
absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features);

}  // namespace permafrost::data
