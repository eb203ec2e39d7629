#include "data/store/categories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CategoryTable Labels(std::vector<int64_t> values) {
  return {.origin = CategoryOrigin::kLabel, .base = values.front(), .values = std::move(values)};
}

CategoryTable Degrees(std::vector<int64_t> values, bool open_ended) {
  return {.origin = CategoryOrigin::kDegree, .open_ended = open_ended, .values = std::move(values)};
}

TEST(Categories, AreTheSameAfterTheirText) {
  Categories all;
  all.node = {.type = DataType::kFloat32, .width = 9, .tables = {Labels({-7, -6, -5, 3})}};
  all.node.tables[0].column = 2;
  all.node.tables[0].columns = 7;
  all.edge = {.type = DataType::kInt32, .width = 2, .tables = {{.values = {0, 5, 6, 7, 1LL << 40}}, {.column = 1}}};
  all.edge.tables[1].too_many = true;
  all.classes = CategoryTable{.origin = CategoryOrigin::kClass, .ranked = true, .values = {-1, 1}};
  const auto back = CategoriesFromJson(CategoriesToJson(all));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, all);
}

TEST(Categories, ALongRunTakesAFewBytes) {
  Categories all;
  all.edge = {.type = DataType::kInt32, .width = 1, .tables = {{}}};
  for (int64_t value = 0; value < kMaxCategoryValues; ++value) all.edge.tables[0].values.push_back(value);
  const std::string text = CategoriesToJson(all);
  EXPECT_LT(text.size(), 500U);
  EXPECT_EQ(CategoriesFromJson(text)->edge.tables[0].values.size(), static_cast<size_t>(kMaxCategoryValues));
  const std::vector<CategorySummary> told = Summarize(all.edge);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].name, "column 0");
  EXPECT_EQ(told[0].values, kMaxCategoryValues);
  EXPECT_THAT(told[0].first_values, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Categories, WhatDoesNotAddUpIsDataLoss) {
  const auto with = [](std::string_view values, std::string_view column = "0") {
    return absl::StrCat(R"({"node":{"type":"int32","width":1,"tables":[{"origin":"column","column":)",
                        std::string(column),
                        R"(,"columns":0,"ranked":false,"base":0,"open_ended":false,"too_many":false,"values":")",
                        std::string(values), R"("}]},"edge":{"type":"none","width":0,"tables":[]}})");
  };
  EXPECT_TRUE(CategoriesFromJson(with("0-3,9")).ok());
  EXPECT_TRUE(CategoriesFromJson(with("-3--1,9")).ok());
  for (const char* bad : {"3-1", "5,5", "1,x", "0-99999999999", ",", "7,3-9"}) {
    const auto read = CategoriesFromJson(with(bad));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("no rising list")) << bad;
  }
  EXPECT_THAT(std::string(CategoriesFromJson(with("0", "1")).status().message()), HasSubstr("none of 1 columns"));
  EXPECT_FALSE(CategoriesFromJson("{").ok());
  // The largest value stands for all larger ones, so there must be at least one value.
  const std::string open = absl::StrReplaceAll(with(""), {{R"("open_ended":false)", R"("open_ended":true)"}});
  EXPECT_THAT(std::string(CategoriesFromJson(open).status().message()), HasSubstr("column 0 does not add up"));
  EXPECT_TRUE(CategoriesFromJson(absl::StrReplaceAll(open, {{R"("values":"")", R"("values":"7")"}})).ok());
  for (const char* width : {"-1", "99999999999"}) {
    const std::string wide = absl::StrReplaceAll(with("0"), {{R"("width":0)", absl::StrCat(R"("width":)", width)}});
    EXPECT_THAT(std::string(CategoriesFromJson(wide).status().message()),
                HasSubstr(absl::StrCat("features of ", width, " columns do not add up")));
  }
}

TEST(CategoryMap, GoesByTheSourcesValues) {
  const struct {
    const char* why;
    CategoryTable own, known;
    std::vector<int64_t> own_categories, want;
    std::vector<int64_t> unknown;
    bool as_they_stand;
  } kCases[] = {
      {"labels 1 and 2 of 0, 1, 2", Labels({1, 2}), Labels({0, 1, 2}), {0, 1}, {1, 2}, {}, false},
      {"equal tables", Labels({4, 6}), Labels({4, 6}), {0, 2}, {0, 2}, {}, true},
      {"fewer from the same base", Labels({4}), Labels({4, 6}), {0}, {0}, {}, true},
      {"other values of equal number", Labels({5, 6}), Labels({0, 1}), {0, 1}, {2, 2}, {5, 6}, false},
      {"a gap in training", Labels({4, 5, 6}), Labels({4, 6}), {0, 1, 2}, {0, 3, 2}, {5}, false},
      {"too wide for an array",
       Labels({0, 1LL << 31}),
       Labels({-5, 0, 1LL << 31}),
       {0, 1LL << 31},
       {5, (1LL << 31) + 5},
       {},
       false},
      {"negative numbers as they stand", {.values = {-3, 2}}, {.values = {0, 2}}, {-3, 2}, {3, 2}, {-3}, false},
      {"classes by rank",
       {.ranked = true, .values = {1, 7}},
       {.ranked = true, .values = {-1, 1, 7}},
       {0, 1},
       {1, 2},
       {},
       false},
      {"all that training counted as 3 or more",
       Degrees({1, 3, 9}, false),
       Degrees({1, 2, 3}, true),
       {1, 3, 9},
       {1, 3, 3},
       {},
       false},
      {"2 or more may be any", Degrees({1, 2}, true), Degrees({1, 2, 3}, false), {1, 2}, {1, 4}, {2}, false},
      {"5 or more is 3 or more", Degrees({1, 5}, true), Degrees({1, 3}, true), {1, 5}, {1, 3}, {}, false},
  };
  for (const auto& c : kCases) {
    const CategoryMap map(c.own, c.known);
    for (size_t i = 0; i < c.want.size(); ++i) EXPECT_EQ(map.To(c.own_categories[i]), c.want[i]) << c.why;
    EXPECT_EQ(map.unknown_values(), c.unknown) << c.why;
    EXPECT_EQ(map.as_they_stand(), c.as_they_stand) << c.why;
    EXPECT_EQ(map.unknown(), c.known.num_categories()) << c.why;
  }
  EXPECT_EQ(CategoryMap().To(7), 7);
}

}  // namespace
}  // namespace permafrost::data
