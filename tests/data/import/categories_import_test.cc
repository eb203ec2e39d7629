// An import keeps the values that categories stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "data/import/feature_rows.h"
#include "data/import/import.h"
#include "data/import/tu_sets.h"
#include "data/store/dataset.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kTrials = fs::path(PERMAFROST_SOURCE_DIR) / "tests/trials";

Categories CategoriesOf(const std::shared_ptr<const GraphSet>& set) {
  const auto categories = set->categories();
  EXPECT_TRUE(categories.ok() && categories->has_value()) << categories.status();
  return categories.ok() ? categories->value_or(Categories()) : Categories();
}

std::shared_ptr<const GraphSet> TrialSet(const TempDir& temp, const std::string& name,
                                         const ImportOptions& options = {}) {
  const auto summary = ImportTu(kTrials / "tu-labels" / name, temp.path() / name, options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  return *GraphSet::Open(temp.path() / name);
}

Files LabelledTu() {
  return With(SmallTu(),
              {{"S_node_labels.txt", "3\n5\n3\n9\n5\n3\n"}, {"S_edge_labels.txt", "7\n7\n8\n7\n7\n7\n7\n7\n"}});
}

TEST(CategoriesImport, LabelsOfATuSet) {
  TempDir temp;
  const auto set = StoreOf(temp.path(), LabelledTu());
  const Categories categories = CategoriesOf(set);
  ASSERT_EQ(categories.node.tables.size(), 1U);
  const CategoryTable& label = categories.node.tables[0];
  EXPECT_EQ(label.origin, CategoryOrigin::kLabel);
  EXPECT_THAT(label.values, ElementsAre(3, 5, 9));
  EXPECT_EQ(label.num_categories(), 7) << "as many as the stored numbers have";
  EXPECT_EQ(label.CategoryOf(9), set->node_features()->ints[3]) << "what is stored says the source's value again";
  EXPECT_THAT(categories.edge.tables[0].values, ElementsAre(7, 8));
  ASSERT_TRUE(categories.classes);
  EXPECT_THAT(categories.classes->values, ElementsAre(-1, 1));
  EXPECT_TRUE(categories.classes->ranked);
  const std::vector<CategorySummary>& told = set->summary().node_features.categories;
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0],
            (CategorySummary{.name = "label 1", .column = 0, .columns = 1, .values = 3, .first_values = {3, 5, 9}}));
  EXPECT_TRUE(set->summary().categories_known);
}

TEST(CategoriesImport, OneHotLabelsBesideAttributes) {
  TempDir temp;
  const auto set =
      StoreOf(temp.path(), With(LabelledTu(), {{"S_node_attributes.txt", "1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n"}}));
  const Categories categories = CategoriesOf(set);
  ASSERT_EQ(categories.node.tables.size(), 1U);
  EXPECT_EQ(categories.node.tables[0].column, 2) << "behind the attributes";
  EXPECT_EQ(categories.node.tables[0].columns, 7);
  EXPECT_EQ(categories.node.tables[0].base, 3);
  EXPECT_THAT(categories.node.tables[0].values, ElementsAre(3, 5, 9));
}

TEST(CategoriesImport, DegreesAndWhetherMoreCountAsTheLast) {
  for (const bool one_hot : {false, true}) {
    TempDir temp;
    ImportOptions options;
    options.tu = {.one_hot = one_hot, .max_degree = 1};
    const CategoryTable table = CategoriesOf(StoreOf(temp.path(), SmallTu(), options)).node.tables.at(0);
    EXPECT_EQ(table.origin, CategoryOrigin::kDegree);
    EXPECT_THAT(table.values, ElementsAre(0, 1));
    EXPECT_TRUE(table.open_ended) << "some have 2";
    EXPECT_EQ(table.columns, one_hot ? 2 : 0);
    TempDir other;
    EXPECT_FALSE(CategoriesOf(StoreOf(other.path(), SmallTu())).node.tables.at(0).open_ended);
  }
}

// AA and BB store the same numbers. In AA they stand for 0 and 1, in BB for 5 and 6.
TEST(CategoriesImport, DataThatMeanSomethingElseAreOtherData) {
  TempDir temp;
  const auto aa = TrialSet(temp, "AA"), bb = TrialSet(temp, "BB");
  ASSERT_EQ(ToVector(aa->node_features()->ints), ToVector(bb->node_features()->ints));
  EXPECT_NE(aa->content_checksum(), bb->content_checksum());
  TempDir again;
  EXPECT_EQ(TrialSet(again, "AA")->content_checksum(), aa->content_checksum());
}

TEST(CategoriesImport, IntegersThatStandAsTheyAre) {
  TempDir temp;
  WriteFiles(temp.path() / "source", {{"raw/num-node-list.csv", "2\n1\n"},
                                      {"raw/num-edge-list.csv", "1\n0\n"},
                                      {"raw/edge.csv", "0,1\n"},
                                      {"raw/edge-feat.csv", "5000000\n"},
                                      {"raw/node-feat.csv", "0,4\n9,-4\n2,4\n"},
                                      {"raw/graph-label.csv", "3\n0\n"}});
  ImportOptions options;
  options.source = temp.path() / "source";
  fs::create_directories(temp.path() / "store");
  ASSERT_TRUE(Import(options, temp.path() / "store", {}, std::stop_token(), {}).ok());
  const auto set = *GraphSet::Open(temp.path() / "store");
  const Categories categories = CategoriesOf(set);
  ASSERT_EQ(categories.node.tables.size(), 2U);
  EXPECT_THAT(categories.node.tables[0].values, ElementsAre(0, 2, 9));
  EXPECT_THAT(categories.node.tables[1].values, ElementsAre(-4, 4));
  EXPECT_EQ(categories.node.tables[1].CategoryOf(-4), -4) << "the value itself";
  EXPECT_THAT(categories.edge.tables.at(0).values, ElementsAre(5000000));
  ASSERT_TRUE(categories.classes);
  EXPECT_THAT(categories.classes->values, ElementsAre(0, 3));
}

TEST(CategoriesImport, IntegersOfEdgesOfOneGraph) {
  TempDir temp;
  WriteFiles(temp.path() / "source", {{"raw/num-node-list.csv", "3\n"},
                                      {"raw/edge.csv", "0,1\n1,2\n"},
                                      {"raw/edge-feat.csv", "7\n2\n"},
                                      {"raw/node-feat.csv", "1\n2\n3\n"},
                                      {"raw/node-label.csv", "0\n2\n\n"}});
  ImportOptions options;
  options.source = temp.path() / "source";
  options.format = ImportFormat::kOgbNodes;
  fs::create_directories(temp.path() / "store");
  const auto imported = Import(options, temp.path() / "store", {}, std::stop_token(), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto graph = *Graph::Open(temp.path() / "store");
  const auto categories = graph->categories();
  ASSERT_TRUE(categories.ok() && categories->has_value()) << categories.status();
  EXPECT_TRUE((*categories)->node.tables.empty()) << "integers of nodes are numbers";
  EXPECT_THAT((*categories)->edge.tables.at(0).values, ElementsAre(2, 7));
  EXPECT_THAT((*categories)->classes->values, ElementsAre(0, 2));
  EXPECT_EQ(graph->summary().edge_features.categories.at(0).values, 2);
  EXPECT_TRUE(graph->VerifyAll(nullptr).ok());
}

TEST(CategoriesImport, AColumnOfTooManyValuesIsGivenUp) {
  ValueSets sets;
  for (int64_t value = 0; value <= kMaxCategoryValues; ++value) {
    sets.Add(0, value);
    sets.Add(1, value % 100 - 50);
  }
  const std::vector<CategoryTable> tables = sets.TakeColumns(3);
  EXPECT_TRUE(tables[0].too_many);
  EXPECT_TRUE(tables[0].values.empty());
  EXPECT_EQ(tables[1].values.size(), 100U);
  EXPECT_EQ(tables[1].values.front(), -50);
  EXPECT_FALSE(tables[1].too_many);
  EXPECT_TRUE(tables[2].values.empty());
}

}  // namespace
}  // namespace permafrost::data
