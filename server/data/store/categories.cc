#include "data/store/categories.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/format.h"
#include "data/store/store_file.h"

namespace permafrost::data {
namespace {

using nlohmann::json;

// Summaries of datasets are read often and shown to people, so they hold only a few tables and values.
constexpr size_t kMostSummarized = 64, kFirstValues = 5;

// Writes values as in "0-5,7,9-118". A '-' that does not begin a number joins the two ends of a range.
std::string ValuesToText(const std::vector<int64_t>& values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end + 1 < values.size() && values[end] != INT64_MAX && values[end + 1] == values[end] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", values[i]);
    if (end > i) absl::StrAppend(&text, "-", values[end]);
    i = end + 1;
  }
  return text;
}

absl::Status BadValues(std::string_view piece) {
  constexpr size_t kShown = 40;
  return absl::DataLossError(absl::StrCat("values: '", AbslView(piece.substr(0, kShown)),
                                          "' is no rising list of at most ", kMaxCategoryValues, " numbers"));
}

absl::StatusOr<std::vector<int64_t>> ValuesFromText(std::string_view text) {
  std::vector<int64_t> values;
  if (text.empty()) return values;
  for (const absl::string_view part : absl::StrSplit(AbslView(text), ',')) {
    const std::string_view piece(part.data(), part.size());
    const size_t dash = piece.find('-', 1);
    int64_t first = 0, last = 0;
    if (!absl::SimpleAtoi(AbslView(piece.substr(0, dash)), &first)) return BadValues(piece);
    last = first;
    if (dash != std::string_view::npos && !absl::SimpleAtoi(AbslView(piece.substr(dash + 1)), &last)) {
      return BadValues(piece);
    }
    const uint64_t more = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
    if (last < first || (!values.empty() && first <= values.back()) ||
        more >= static_cast<uint64_t>(kMaxCategoryValues) - values.size()) {
      return BadValues(piece);
    }
    for (uint64_t i = 0; i <= more; ++i) values.push_back(first + static_cast<int64_t>(i));
  }
  return values;
}

json TableToJson(const CategoryTable& table) {
  return {{"origin", kCategoryOriginNames.Name(table.origin)},
          {"column", table.column},
          {"columns", table.columns},
          {"ranked", table.ranked},
          {"base", table.base},
          {"open_ended", table.open_ended},
          {"too_many", table.too_many},
          {"values", ValuesToText(table.values)}};
}

absl::StatusOr<CategoryTable> TableFromJson(const json& j) {
  CategoryTable table;
  const auto origin = kCategoryOriginNames.Parse(j.at("origin").get<std::string>());
  if (!origin) return absl::DataLossError(absl::StrCat("origin is none of ", kCategoryOriginNames.Accepted()));
  table.origin = *origin;
  j.at("column").get_to(table.column);
  j.at("columns").get_to(table.columns);
  j.at("ranked").get_to(table.ranked);
  j.at("base").get_to(table.base);
  j.at("open_ended").get_to(table.open_ended);
  j.at("too_many").get_to(table.too_many);
  PF_ASSIGN_OR_RETURN(table.values, ValuesFromText(j.at("values").get<std::string>()));
  if (table.column < 0 || table.columns < 0 || (table.open_ended && table.values.empty())) {
    return absl::DataLossError(absl::StrCat("the table of column ", table.column, " does not add up"));
  }
  return table;
}

json FeaturesToJson(const FeatureCategories& features) {
  json tables = json::array();
  for (const CategoryTable& table : features.tables) tables.push_back(TableToJson(table));
  return {{"type", kDataTypeNames.Name(features.type)}, {"width", features.width}, {"tables", std::move(tables)}};
}

absl::StatusOr<FeatureCategories> CategoriesOfFeatures(const json& j) {
  FeatureCategories features;
  const auto type = kDataTypeNames.Parse(j.at("type").get<std::string>());
  if (!type) return absl::DataLossError(absl::StrCat("feature type is none of ", kDataTypeNames.Accepted()));
  features.type = *type;
  j.at("width").get_to(features.width);
  // No section of a store has more columns than this.
  if (features.width < 0 || features.width > std::numeric_limits<uint32_t>::max()) {
    return absl::DataLossError(absl::StrCat("features of ", features.width, " columns do not add up"));
  }
  int64_t end = 0;
  for (const json& each : j.at("tables")) {
    PF_ASSIGN_OR_RETURN(CategoryTable table, TableFromJson(each));
    const int64_t columns = std::max<int64_t>(table.columns, 1);
    if (table.column < end || columns > features.width || table.column > features.width - columns) {
      return absl::DataLossError(
          absl::StrCat("the table of column ", table.column, " is none of ", features.width, " columns"));
    }
    end = table.column + columns;
    features.tables.push_back(std::move(table));
  }
  return features;
}

}  // namespace

int64_t CategoryTable::num_categories() const {
  if (one_hot()) return columns;
  if (values.empty()) return 1;
  if (ranked) return static_cast<int64_t>(values.size());
  // A column of 64-bit integers may hold any number. The numbers are clamped so that their difference does not
  // overflow. This changes only numbers that are too large for a model to train on.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  return std::clamp<int64_t>(std::clamp(values.back(), -kMost, kMost) - std::clamp(base, -kMost, kMost) + 1, 1, kMost);
}

std::optional<int64_t> CategoryTable::CategoryOf(int64_t value) const {
  const auto found = std::ranges::lower_bound(values, value);
  if (found == values.end() || *found != value) return std::nullopt;
  return ranked ? found - values.begin()
                : static_cast<int64_t>(static_cast<uint64_t>(value) - static_cast<uint64_t>(base));
}

std::string NameOfTable(const CategoryTable& table, size_t place) {
  switch (table.origin) {
    case CategoryOrigin::kLabel:
      return absl::StrCat("label ", place + 1);
    case CategoryOrigin::kDegree:
      return "degree";
    case CategoryOrigin::kClass:
      return "class";
    case CategoryOrigin::kColumn:
      break;
  }
  return absl::StrCat("column ", table.column);
}

std::string NameOfValue(const CategoryTable& table, int64_t value) {
  const bool is_open = table.open_ended && !table.values.empty() && value == table.values.back();
  return absl::StrCat(value, is_open ? " or more" : "");
}

std::vector<CategorySummary> Summarize(const FeatureCategories& features) {
  std::vector<CategorySummary> summaries;
  for (size_t i = 0; i < std::min(features.tables.size(), kMostSummarized); ++i) {
    const CategoryTable& table = features.tables[i];
    const auto first = static_cast<std::ptrdiff_t>(std::min(table.values.size(), kFirstValues));
    summaries.push_back({.name = NameOfTable(table, i),
                         .column = table.column,
                         .columns = std::max<int64_t>(table.columns, 1),
                         .values = static_cast<int64_t>(table.values.size()),
                         .first_values = {table.values.begin(), table.values.begin() + first}});
  }
  return summaries;
}

std::string CategoriesToJson(const Categories& categories) {
  json j = {{"node", FeaturesToJson(categories.node)}, {"edge", FeaturesToJson(categories.edge)}};
  if (categories.classes) j["classes"] = TableToJson(*categories.classes);
  return j.dump();
}

absl::StatusOr<Categories> CategoriesFromJson(std::string_view text) {
  // nlohmann reports errors by exceptions. They must not leave this function.
  try {
    const json j = json::parse(text);
    Categories categories;
    PF_ASSIGN_OR_RETURN(categories.node, CategoriesOfFeatures(j.at("node")));
    PF_ASSIGN_OR_RETURN(categories.edge, CategoriesOfFeatures(j.at("edge")));
    if (const auto classes = j.find("classes"); classes != j.end()) {
      PF_ASSIGN_OR_RETURN(categories.classes, TableFromJson(*classes));
    }
    return categories;
  } catch (const json::exception& e) {
    return absl::DataLossError(e.what());
  }
}

namespace {

// If `own` has more categories than this, the map is sparse. A dense map takes 8 bytes for each category, even for
// one that does not occur.
constexpr int64_t kMostDense = int64_t{1} << 21;

// Returns the category in `known` for a value of `own`, or nullopt if there is none.
std::optional<int64_t> Translate(const CategoryTable& own, const CategoryTable& known, int64_t value) {
  const bool is_open = own.open_ended && value == own.values.back();
  // If `known` is open-ended, its last value stands for every larger value.
  if (known.open_ended && value >= known.values.back()) return known.CategoryOf(known.values.back());
  // The open end of `own`, such as "50 or more", could be any of several values of `known`.
  return is_open ? std::nullopt : known.CategoryOf(value);
}

}  // namespace

CategoryMap::CategoryMap(const CategoryTable& own, const CategoryTable& known) : unknown_(known.num_categories()) {
  const int64_t categories = own.num_categories();
  const bool dense = categories <= kMostDense && (own.values.empty() || own.CategoryOf(own.values.front()) >= 0);
  if (dense) dense_.assign(static_cast<size_t>(categories), unknown_);
  for (const int64_t value : own.values) {
    const std::optional<int64_t> category = own.CategoryOf(value);
    const std::optional<int64_t> to = Translate(own, known, value);
    if (!to) unknown_values_.push_back(value);
    const int64_t means = to.value_or(unknown_);
    as_they_stand_ = as_they_stand_ && means == *category;
    (dense ? dense_[static_cast<size_t>(*category)] : sparse_[*category]) = means;
  }
}

namespace {

// If `numbered` is true, returns the tables whose categories the import numbered. Otherwise returns the remaining
// tables.
Categories OnlyNumbered(const Categories& all, bool numbered) {
  // Degrees count as numbered, because the import made them by counting. Yet their table looks like the table of a
  // column that was taken over unchanged.
  const auto belongs = [numbered](const CategoryTable& table) {
    return numbered == (table.renumbered() || table.origin == CategoryOrigin::kDegree);
  };
  Categories some = all;
  for (FeatureCategories* features : {&some.node, &some.edge}) {
    std::erase_if(features->tables, [&](const CategoryTable& table) { return !belongs(table); });
  }
  if (some.classes && !belongs(*some.classes)) some.classes.reset();
  return some;
}

std::string TextOf(const Categories& categories) {
  const bool any = !categories.node.tables.empty() || !categories.edge.tables.empty() || categories.classes;
  return any ? CategoriesToJson(categories) : "";
}

absl::Status Merge(FeatureCategories from, FeatureCategories& to) {
  if (from.type != to.type || from.width != to.width) {
    return absl::DataLossError(
        absl::StrCat("its features have ", from.width, " columns, and those of the summary ", to.width));
  }
  std::ranges::move(from.tables, std::back_inserter(to.tables));
  std::ranges::sort(to.tables, {}, &CategoryTable::column);
  return absl::OkStatus();
}

absl::Status ReadSection(const StoreFile& file, SectionKind kind, Categories& categories) {
  const StoreFile::Section* const section = file.Find(kind);
  if (section == nullptr) return absl::OkStatus();
  const auto guard = file.Guard(*section, nullptr);
  if (!guard->Touch(0, section->bytes.size())) {
    PF_RETURN_IF_ERROR(file.CheckIntact());
    return guard->status();
  }
  const auto text = section->As<char>();
  auto read = CategoriesFromJson(std::string_view(text.data(), text.size()));
  PF_RETURN_IF_ERROR(file.CheckIntact());
  absl::Status status = read.status();
  if (status.ok()) status = Merge(std::move(read->node), categories.node);
  if (status.ok()) status = Merge(std::move(read->edge), categories.edge);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat(file.path().string(), ": ", SectionField(kind, "content")));
  }
  if (read->classes) categories.classes = std::move(read->classes);
  return absl::OkStatus();
}

}  // namespace

CategorySections SectionsOf(const Categories& categories) {
  return {.numbered = TextOf(OnlyNumbered(categories, true)), .seen = TextOf(OnlyNumbered(categories, false))};
}

absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features) {
  for (const SectionKind kind : {SectionKind::kNumberedCategories, SectionKind::kSeenCategories}) {
    PF_RETURN_IF_ERROR(ReadSection(file, kind, features));
  }
  return features;
}

}  // namespace permafrost::data
