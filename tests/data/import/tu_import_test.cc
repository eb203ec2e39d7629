#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/import/tu_sets.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

TEST(TuImport, GraphsAreAsTheFilesSay) {
  TempDir temp;
  const auto set = StoreOf(temp.path(), SmallTu());
  ASSERT_NE(set, nullptr);
  const GraphSetSummary& summary = set->summary();
  EXPECT_THAT(ToVector(*set->node_offsets()), ElementsAre(0, 3, 4, 6));
  EXPECT_THAT(ToVector(*set->edge_offsets()), ElementsAre(0, 5, 5, 8));
  // Edges are stored by target, and equal targets keep the file's order.
  EXPECT_THAT(ToVector(*set->edge_target()), ElementsAre(0, 1, 1, 1, 2, 0, 1, 1));
  EXPECT_THAT(ToVector(*set->edge_source()), ElementsAre(1, 0, 0, 2, 1, 1, 0, 1));
  EXPECT_FALSE(summary.inverse_edges_added);
  EXPECT_EQ(summary.duplicate_edges, 1);
  // Classes count from 0, in the order of the source's numbers. class_values keeps those numbers.
  EXPECT_THAT(ToVector(*set->labels()), ElementsAre(1, 0, 1));
  EXPECT_THAT(summary.class_values, ElementsAre(-1, 1));
  EXPECT_TRUE(summary.labels_known && summary.integer_labels);
  EXPECT_EQ(summary.min_label, 0);
  EXPECT_EQ(summary.max_label, 1);
  // Nodes without labels and attributes get their out-degree as a feature.
  const FeatureTable nodes = *set->node_features();
  EXPECT_EQ(nodes.type, DataType::kInt32);
  EXPECT_THAT(ToVector(nodes.ints), ElementsAre(2, 2, 1, 0, 1, 2));
  EXPECT_THAT(summary.node_features.max, ElementsAre(2));
  EXPECT_EQ(summary.node_feature_origin, "degrees, at most 1000 (0 nodes have more)");
  EXPECT_EQ(set->edge_features()->type, DataType::kNone);
}

TEST(TuImport, SeveralEdgesMerge) {
  TempDir temp;
  const auto set = StoreOf(temp.path(), With(SmallTu(), {{"S_edge_labels.txt", "5\n6\n7\n8\n9\n5\n5\n6\n"}}),
                           {.source = {}, .coalesce = true, .split = {}});
  ASSERT_NE(set, nullptr);
  EXPECT_THAT(ToVector(*set->edge_target()), ElementsAre(0, 1, 1, 2, 0, 1, 1));
  EXPECT_THAT(ToVector(*set->edge_source()), ElementsAre(1, 0, 2, 1, 1, 0, 1));
  // The merged edge keeps the label of its first row. Labels count from the smallest.
  EXPECT_THAT(ToVector(set->edge_features()->ints), ElementsAre(1, 0, 4, 3, 0, 0, 1));
  EXPECT_EQ(set->summary().edge_feature_origin, "labels from 5");
  EXPECT_EQ(set->summary().duplicate_edges, 1);
  // Degrees count the kept edges only.
  EXPECT_THAT(ToVector(set->node_features()->ints), ElementsAre(1, 2, 1, 0, 1, 2));
}

TEST(TuImport, FeaturesAreLabelsAttributesOrBoth) {
  const Files labels = {{"S_node_labels.txt", "3\n5\n3\n4\n3\n5\n"}};
  const Files attributes = {{"S_node_attributes.txt", "1, 0.5\n2, 0.5\n3, 0.5\n4, 0.5\n5, 0.5\n6, 0.5\n"}};
  Files both = labels;
  both.insert(attributes.begin(), attributes.end());
  const struct {
    const char* why;
    Files files;
    TuOptions tu;
    DataType type;
    std::vector<float> first, last;  // first and last row of the features
    std::string origin;
  } kCases[] = {
      {"labels are categories from the smallest", labels, {}, DataType::kInt32, {0}, {2}, "labels from 3"},
      {"one-hot labels", labels, {.one_hot = true}, DataType::kFloat32, {1, 0, 0}, {0, 0, 1}, "one-hot labels from 3"},
      {"attributes", attributes, {}, DataType::kFloat32, {1, 0.5}, {6, 0.5}, "attributes"},
      {"both, as PyG with use_node_attr",
       both,
       {},
       DataType::kFloat32,
       {1, 0.5, 1, 0, 0},
       {6, 0.5, 0, 0, 1},
       "attributes and one-hot labels from 3"},
      {"labels of both", both, {.node_features = TuNodeFeatures::kLabels}, DataType::kInt32, {0}, {2}, "labels from 3"},
      {"attributes of both",
       both,
       {.node_features = TuNodeFeatures::kAttributes},
       DataType::kFloat32,
       {1, 0.5},
       {6, 0.5},
       "attributes"},
      {"degrees all the same",
       both,
       {.node_features = TuNodeFeatures::kDegree},
       DataType::kInt32,
       {2},
       {2},
       "degrees, at most 1000 (0 nodes have more)"},
      {"capped degrees", {}, {.max_degree = 1}, DataType::kInt32, {1}, {1}, "degrees, at most 1 (3 nodes have more)"},
      {"one-hot degrees",
       {},
       {.one_hot = true},
       DataType::kFloat32,
       {0, 0, 1},
       {0, 0, 1},
       "one-hot degrees, at most 1000 (0 nodes have more)"},
      {"several labels a node",
       {{"S_node_labels.txt", "0, 1\n0, 1\n0, 1\n0, 1\n0, 1\n1, 3\n"}},
       {},
       DataType::kInt32,
       {0, 0},
       {1, 2},
       "labels from 0, 1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    const auto set = StoreOf(temp.path(), With(SmallTu(), c.files), {.source = {}, .split = {}, .tu = c.tu});
    ASSERT_NE(set, nullptr);
    const FeatureTable table = *set->node_features();
    EXPECT_EQ(table.type, c.type);
    ASSERT_EQ(table.width, static_cast<int64_t>(c.first.size()));
    const auto row = [&](size_t n) {
      std::vector<float> values;
      for (size_t i = 0; i < c.first.size(); ++i) {
        const size_t at = n * c.first.size() + i;
        values.push_back(c.type == DataType::kInt32 ? static_cast<float>(table.ints[at]) : table.floats[at]);
      }
      return values;
    };
    EXPECT_EQ(row(0), c.first);
    EXPECT_EQ(row(5), c.last);
    EXPECT_EQ(set->summary().node_feature_origin, c.origin);
    for (size_t column = 0; column < c.first.size(); ++column) {
      double low = row(0)[column], high = low;
      for (size_t n = 0; n < 6; ++n)
        low = std::min<double>(low, row(n)[column]), high = std::max<double>(high, row(n)[column]);
      EXPECT_EQ(set->summary().node_features.min[column], low) << column;
      EXPECT_EQ(set->summary().node_features.max[column], high) << column;
    }
  }
}

TEST(TuImport, TargetsOfOtherKinds) {
  TempDir temp;
  // Attributes of a graph win over its class, as in PyG, and stay unchanged.
  const auto measured =
      StoreOf(temp.path() / "a", With(SmallTu(), {{"S_graph_attributes.txt", "0.5, 1\nnan, 2\n3, 4\n"}}));
  ASSERT_NE(measured, nullptr);
  EXPECT_EQ(measured->summary().num_targets, 2);
  EXPECT_EQ(measured->summary().num_missing_labels, 1);
  EXPECT_TRUE(measured->summary().class_values.empty());
  EXPECT_FALSE(measured->summary().integer_labels);
  EXPECT_EQ(measured->summary().min_label, 0.5);
  EXPECT_EQ((*measured->labels())[5], 4);
  // A missing class stays missing.
  const auto missing = StoreOf(temp.path() / "b", With(SmallTu(), {{"S_graph_labels.txt", "7\nnan\n9\n"}}));
  ASSERT_NE(missing, nullptr);
  EXPECT_THAT(missing->summary().class_values, ElementsAre(7, 9));
  EXPECT_TRUE(std::isnan((*missing->labels())[1]));
  EXPECT_EQ((*missing->labels())[2], 1);
  // Fractions are not classes.
  const auto values = StoreOf(temp.path() / "c", With(SmallTu(), {{"S_graph_labels.txt", "7\n8.5\n9\n"}}));
  ASSERT_NE(values, nullptr);
  EXPECT_TRUE(values->summary().class_values.empty());
  EXPECT_EQ((*values->labels())[1], 8.5F);
  Files none = SmallTu();
  none.erase("S_graph_labels.txt");
  const auto unlabelled = StoreOf(temp.path() / "d", none);
  ASSERT_NE(unlabelled, nullptr);
  EXPECT_EQ(unlabelled->summary().num_targets, 0);
  EXPECT_EQ(unlabelled->summary().all.graphs, 3);
}

TEST(TuImport, IdsFromZeroAndGraphsWithoutNodes) {
  TempDir temp;
  const auto zero = StoreOf(temp.path() / "a", {{"S_A.txt", "1,2\n0,1\n3,3\n"},
                                                {"S_graph_indicator.txt", "0\n0\n0\n2\n"},
                                                {"S_graph_labels.txt", "1\n2\n2\n1\n"}});
  ASSERT_NE(zero, nullptr);
  EXPECT_THAT(ToVector(*zero->node_offsets()), ElementsAre(0, 3, 3, 4, 4));
  EXPECT_THAT(ToVector(*zero->edge_source()), ElementsAre(0, 1, 0));
  EXPECT_THAT(ToVector(*zero->edge_target()), ElementsAre(1, 2, 0));
}

TEST(TuImport, ZipAndFoldersGiveTheSameStore) {
  TempDir temp;
  Files nested, raw, archived = {{"__MACOSX/deep/._S_graph_indicator.txt", "no text"}};
  for (const auto& [name, text] : SmallTu()) {
    raw["raw/" + name] = text;
    archived["deep/" + name] = text;
  }
  WriteFiles(temp.path() / "plain", SmallTu());
  WriteFiles(temp.path() / "pyg", raw);
  ZipOf(temp.path() / "set.ZIP", archived);
  std::vector<std::string> stores;
  for (const char* source : {"plain", "pyg", "set.ZIP"}) {
    SCOPED_TRACE(source);
    const fs::path store = temp.path() / absl::StrCat("store-", source);
    const auto summary = ImportTu(temp.path() / source, store);
    ASSERT_TRUE(summary.ok()) << summary.status();
    stores.push_back(FileBytes(store / GraphSet::kFileName));
  }
  EXPECT_FALSE(stores[0].empty());
  EXPECT_EQ(stores[1], stores[0]);
  EXPECT_EQ(stores[2], stores[0]);
}

TEST(TuImport, SplitsAreStratifiedAndSeeded) {
  // 200 graphs of one node: 150 of class 0, 50 of class 1.
  Files files = {{"S_A.txt", ""}, {"S_graph_indicator.txt", ""}, {"S_graph_labels.txt", ""}};
  for (int g = 1; g <= 200; ++g) {
    absl::StrAppend(&files["S_graph_indicator.txt"], g, "\n");
    absl::StrAppend(&files["S_graph_labels.txt"], g % 4 == 0 ? 2 : 1, "\n");
  }
  std::map<uint64_t, std::vector<uint32_t>> tests;
  for (const uint64_t seed : {0u, 0u, 1u}) {
    TempDir temp;
    const auto set = StoreOf(temp.path(), files, {.source = {}, .split = {}, .split_seed = seed});
    ASSERT_NE(set, nullptr);
    const auto labels = ToVector(*set->labels());
    std::vector<int> times(200);
    const struct {
      Split split;
      int64_t of[2];
    } kWant[] = {{Split::kTrain, {120, 40}}, {Split::kValid, {15, 5}}, {Split::kTest, {15, 5}}};
    for (const auto& want : kWant) {
      int64_t of[2] = {0, 0};
      const auto graphs = ToVector(*set->split(want.split));
      for (const uint32_t graph : graphs) ++of[labels[graph] > 0.5F], ++times[graph];
      EXPECT_NEAR(of[0], want.of[0], 1);
      EXPECT_NEAR(of[1], want.of[1], 1);
    }
    EXPECT_EQ(std::ranges::count(times, 1), 200);
    const auto test = ToVector(*set->split(Split::kTest));
    const auto [known, fresh] = tests.emplace(seed, test);
    if (!fresh) {
      EXPECT_EQ(known->second, test);
    }
  }
  EXPECT_NE(tests.at(0), tests.at(1));
}

// The expected counts are those of SOURCE.md beside the shared files.
TEST(TuImport, SharedSets) {
  const struct {
    const char* name;
    int64_t graphs, nodes, edges, duplicates;
    std::vector<int64_t> classes;
    int64_t node_width, edge_width;
  } kSets[] = {
      {"MUTAG", 188, 3371, 7442, 0, {-1, 1}, 1, 1},
      {"PROTEINS", 1113, 43471, 162088, 0, {1, 2}, 4, 0},
      {"IMDB-BINARY", 1000, 19773, 193062, 0, {0, 1}, 1, 0},
      {"IMDB-BINARY-duplicated", 1000, 19773, 386124, 193062, {0, 1}, 1, 0},
  };
  for (const auto& want : kSets) {
    SCOPED_TRACE(want.name);
    const fs::path source = SharedTu(want.name);
    if (source.empty()) GTEST_SKIP() << "no ../shared/data/tu";
    TempDir temp;
    const auto summary = ImportTu(source, temp.path() / "store");
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->all.graphs, want.graphs);
    EXPECT_EQ(summary->all.nodes, want.nodes);
    EXPECT_EQ(summary->all.edges, want.edges);
    EXPECT_EQ(summary->duplicate_edges, want.duplicates);
    EXPECT_EQ(summary->class_values, want.classes);
    EXPECT_EQ(summary->node_features.width, want.node_width);
    EXPECT_EQ(summary->edge_features.width, want.edge_width);
    const auto set = GraphSet::Open(temp.path() / "store");
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_TRUE((*set)->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
    EXPECT_EQ((*set)->summary().class_values, want.classes);
    EXPECT_EQ((*set)->summary().node_feature_origin, summary->node_feature_origin);
  }
}

TEST(TuImport, MergedDuplicatesAreTheSetWithoutThem) {
  if (SharedTu("IMDB-BINARY").empty()) GTEST_SKIP() << "no ../shared/data/tu";
  TempDir temp;
  ASSERT_TRUE(ImportTu(SharedTu("IMDB-BINARY"), temp.path() / "once").ok());
  ASSERT_TRUE(ImportTu(SharedTu("IMDB-BINARY-duplicated"), temp.path() / "merged",
                       {.source = {}, .coalesce = true, .split = {}})
                  .ok());
  const auto once = GraphSet::Open(temp.path() / "once"), merged = GraphSet::Open(temp.path() / "merged");
  ASSERT_TRUE(once.ok() && merged.ok());
  EXPECT_EQ(ToVector(*(*once)->edge_offsets()), ToVector(*(*merged)->edge_offsets()));
  EXPECT_EQ(ToVector(*(*once)->edge_source()), ToVector(*(*merged)->edge_source()));
  EXPECT_EQ(ToVector((*once)->node_features()->ints), ToVector((*merged)->node_features()->ints));
}

TEST(TuImport, MemoryIsBounded) {
  TempDir temp;
  std::string indicator, labels, edges;
  for (int g = 1; g <= 5000; ++g) absl::StrAppend(&indicator, g, "\n"), absl::StrAppend(&labels, "1\n");
  WriteFiles(temp.path() / "graphs",
             {{"S_A.txt", ""}, {"S_graph_indicator.txt", indicator}, {"S_graph_labels.txt", labels}});
  const ImportLimits limits{.memory_bytes = 20'000};
  auto summary = ImportTu(temp.path() / "graphs", temp.path() / "store", {}, limits);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
  indicator.clear();
  for (int n = 1; n <= 40; ++n) absl::StrAppend(&indicator, "1\n");
  for (int a = 1; a <= 40; ++a)
    for (int b = 1; b <= 40; ++b) absl::StrAppend(&edges, a, ",", b, "\n");
  WriteFiles(temp.path() / "edges",
             {{"S_A.txt", edges}, {"S_graph_indicator.txt", indicator}, {"S_graph_labels.txt", "1\n"}});
  summary = ImportTu(temp.path() / "edges", temp.path() / "store", {}, limits);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
  // Nodes without other features get their degrees, which take memory.
  indicator.clear();
  for (int n = 1; n <= 2600; ++n) absl::StrAppend(&indicator, "1\n");
  WriteFiles(temp.path() / "nodes",
             {{"S_A.txt", ""}, {"S_graph_indicator.txt", indicator}, {"S_graph_labels.txt", "1\n"}});
  summary = ImportTu(temp.path() / "nodes", temp.path() / "store", {}, limits);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
  EXPECT_EQ(summary.status().message(),
            "S_graph_indicator.txt:2501: 2501 nodes of one graph take more memory than an import's limit, 20000 bytes "
            "(2500 at 8 bytes each)");
}

}  // namespace
}  // namespace permafrost::data
