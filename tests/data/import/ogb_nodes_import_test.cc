#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Four nodes, and three edges with weights and features. Two labels are missing.
Files SmallGraph() {
  return {{"raw/num-node-list.csv", "4\n"},         {"raw/num-edge-list.csv", "3\n"},
          {"raw/edge.csv", "2,0\n0,1\n3,3\n"},      {"raw/edge-weight.csv", "0.5\n1\n2\n"},
          {"raw/edge-feat.csv", "7,1\n8,2\n9,3\n"}, {"raw/node-feat.csv", "1,0\n2,-5\n3,0\n4,0\n"},
          {"raw/node-label.csv", "1\n\n-2\nnan\n"}, {"split/plain/train.csv", "2\n0\n"},
          {"split/plain/valid.csv", "1\n"},         {"split/plain/test.csv", ""}};
}

class OgbNodesImport : public ::testing::Test {
 protected:
  ImportOptions Options(const Files& files) {
    fs::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    return {.source = temp_.path() / "source"};
  }
  std::shared_ptr<const Graph> Make(const ImportOptions& options) { return MakeGraph(temp_.path() / "store", options); }
  TempDir temp_;
};

TEST_F(OgbNodesImport, ReadsAllThereIs) {
  const auto graph = Make(Options(SmallGraph()));
  ASSERT_NE(graph, nullptr);
  const GraphView& view = graph->view();
  EXPECT_THAT(Values(view.in.offsets), ElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(Values(view.in.neighbors), ElementsAre(1, 2, 0, 0, 3));
  EXPECT_THAT(Values(view.in.weights), ElementsAre(1, 0.5f, 1, 0.5f, 2));
  EXPECT_THAT(Values(view.in.edge_ids), ElementsAre(1, 0, 1, 0, 2)) << "an edge and its inverse share a row";
  EXPECT_EQ(view.edge_features.type, DataType::kInt32);
  EXPECT_EQ(view.edge_features.bytes.size(), 3 * 2 * sizeof(int32_t));
  const auto& features = std::get<DenseFeatures>(view.node_features);
  EXPECT_EQ(features.type, DataType::kInt32);
  EXPECT_EQ(features.width, 2);
  const auto labels = Values(view.labels);
  EXPECT_EQ(labels[0], 1);
  EXPECT_TRUE(std::isnan(labels[1]) && std::isnan(labels[3]));
  EXPECT_THAT(Values(view.splits[0]), ElementsAre(0, 2)) << "rising";
  EXPECT_THAT(Values(view.splits[1]), ElementsAre(1));
  EXPECT_THAT(Values(view.splits[2]), IsEmpty());
  const GraphSummary& summary = graph->summary();
  EXPECT_EQ(summary.num_targets, 1);
  EXPECT_EQ(summary.num_missing_labels, 2);
  EXPECT_EQ(summary.min_label, -2);
  EXPECT_EQ(summary.max_label, 1);
  EXPECT_TRUE(summary.integer_labels);
  EXPECT_EQ(summary.split_name, "plain");
  EXPECT_THAT(summary.node_features.min, ElementsAre(1, -5));
  EXPECT_THAT(summary.node_features.max, ElementsAre(4, 0));
  EXPECT_THAT(summary.edge_features.max, ElementsAre(9, 3));
}

TEST_F(OgbNodesImport, PositionsAreFloatsOfEachNode) {
  Files plain = SmallGraph();
  plain["raw/node-pos.csv"] = "0,1\n1.5,-1\n3,4\n1e3,7\n";
  Files packed = SmallGraph();
  packed["raw/node-pos.csv.gz"] = Gzip(plain["raw/node-pos.csv"]);
  Files array = SmallGraph();
  array["raw/node-pos.npy"] = Npy<double>("<f8", "(4, 2)", {0, 1, 1.5, -1, 3, 4, 1e3, 7});
  for (const Files& files : {plain, packed, array}) {
    const auto graph = Make(Options(files));
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(graph->summary().position_columns, 2);
    EXPECT_EQ(graph->summary().node_features.width, 2) << "they are no features";
    const auto& positions = std::get<DenseFeatures>(graph->view().positions);
    std::vector<float> rows(8);
    ASSERT_TRUE(ReadRows(positions, 0, 4, rows.data()).ok());
    EXPECT_THAT(rows, ElementsAre(0, 1, 1.5F, -1, 3, 4, 1000, 7));
    for (const std::string& note : graph->summary().notes)
      EXPECT_THAT(note, Not(HasSubstr("node-pos"))) << "it was read";
    EXPECT_TRUE(graph->VerifyAll(nullptr).ok());
  }
}

TEST_F(OgbNodesImport, DirectedEdgesKeepTheirFeaturesBothWays) {
  ImportOptions options = Options(SmallGraph());
  options.inverse_edges = InverseEdges::kKeep;
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(Values(graph->view().in.edge_ids), ElementsAre(0, 1, 2));
  EXPECT_THAT(Values(graph->view().out.neighbors), ElementsAre(1, 0, 3));
  EXPECT_THAT(Values(graph->view().out.edge_ids), ElementsAre(1, 0, 2));
}

TEST_F(OgbNodesImport, ChoosesBetweenDenseAndSparse) {
  const std::string wide = "1,0,0,0,0,0,0,0,0,0,0,0\n0,0,0,0,0,0,0,0,0,0,0,1\n";  // 2 of 24 values are not zero
  const struct {
    const char* why;
    std::string dense, sparse;
    NodeFeatureChoice choice;
    DataType want;
  } kCases[] = {
      {"few are not zero: sparse", wide, "0,0\n1,11\n", NodeFeatureChoice::kAuto, DataType::kSparse},
      {"asked for", wide, "0,0\n1,11\n", NodeFeatureChoice::kDense, DataType::kInt32},
      {"many are not zero: dense", "1,0\n0,1\n", "0,0\n1,1\n", NodeFeatureChoice::kAuto, DataType::kInt32},
      {"asked for", "1,0\n0,1\n", "0,0\n1,1\n", NodeFeatureChoice::kSparse, DataType::kSparse},
      {"another table: the sparse one", "1\n0.5\n", "0,0\n1,1\n", NodeFeatureChoice::kAuto, DataType::kSparse},
  };
  for (const auto& c : kCases) {
    ImportOptions options = Options({{"raw/num-node-list.csv", "2\n"},
                                     {"raw/edge.csv", "0,1\n"},
                                     {"raw/node-feat.csv", c.dense},
                                     {"raw/node-feat-sparse.csv", c.sparse}});
    options.node_features = c.choice;
    const auto graph = Make(options);
    ASSERT_NE(graph, nullptr) << c.why;
    EXPECT_EQ(graph->summary().node_features.type, c.want) << c.why;
  }
}

TEST_F(OgbNodesImport, SparseRowsAreSortedAndKeepValuesThatAreNotOne) {
  const auto make = [this](const std::string& rows) {
    return Make(
        Options({{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", "0,1\n"}, {"raw/node-feat-sparse.csv", rows}}));
  };
  auto graph = make("2,4\n0,1\n2,0\n");
  ASSERT_NE(graph, nullptr);
  auto features = std::get<SparseFeatures>(graph->view().node_features);
  EXPECT_EQ(features.width, 5);
  EXPECT_THAT(Values(features.offsets), ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(Values(features.columns), ElementsAre(1, 0, 4));
  EXPECT_TRUE(features.values.empty()) << "all are 1";
  graph = make("2,1,3\n0,1,-0.5\n1,0,0\n1,1,1\n");
  ASSERT_NE(graph, nullptr);
  features = std::get<SparseFeatures>(graph->view().node_features);
  EXPECT_THAT(Values(features.values), ElementsAre(-0.5f, 1, 3));
  EXPECT_EQ(graph->summary().node_feature_nonzeros, 3);
  EXPECT_THAT(graph->summary().node_features.min, ElementsAre(0, -0.5));
  EXPECT_THAT(graph->summary().node_features.max, ElementsAre(0, 3));
}

TEST_F(OgbNodesImport, SplitsMayBeMasksOrDrawnAmongLabelledNodes) {
  Files files = SmallGraph();
  for (const char* split : {"train", "valid", "test"}) files.erase("split/plain/" + std::string(split) + ".csv");
  files["split/plain/train_mask.csv"] = "0\n1\n0\n0\n";
  files["split/plain/valid_mask.csv"] = "1\n0\n0\n1\n";
  files["split/plain/test_mask.csv"] = "0\n0\n0\n0\n";
  auto graph = Make(Options(files));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(Values(graph->view().splits[0]), ElementsAre(1));
  EXPECT_THAT(Values(graph->view().splits[1]), ElementsAre(0, 3));
  for (const char* split : {"train", "valid", "test"}) files.erase("split/plain/" + std::string(split) + "_mask.csv");
  ImportOptions options = Options(files);
  options.train_fraction = 1;
  options.valid_fraction = 0;
  graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(Values(graph->view().splits[0]), ElementsAre(0, 2)) << "1 and 3 have no label";
  EXPECT_EQ(graph->summary().split_name, "random");
}

TEST_F(OgbNodesImport, SaysWhereAndWhatIsWrong) {
  const struct {
    const char* why;
    std::string file, text, want;
  } kCases[] = {
      {"several graphs", "raw/num-node-list.csv", "4\n5\n", "raw/num-node-list.csv: rows: the file has 2, expected 1"},
      {"no nodes", "raw/num-node-list.csv", "0\n", "raw/num-node-list.csv:1: nodes: 0 is outside 1..4294967295"},
      {"an end that is no node", "raw/edge.csv", "0,1\n1,4\n0,0\n",
       "raw/edge.csv:2:2: target: 4 is outside 0..3 (raw/num-node-list.csv has 4 nodes)"},
      {"an edge too few", "raw/num-edge-list.csv", "4\n",
       "raw/edge.csv: rows: the file has 3, expected 4 (as raw/num-edge-list.csv says)"},
      {"a weight too few", "raw/edge-weight.csv", "1\n1\n",
       "raw/edge-weight.csv:2: the file ends here, expected one weight an edge"},
      {"a weight too many", "raw/edge-weight.csv", "1\n1\n1\n1\n",
       "raw/edge-weight.csv: rows: the file has 4, expected 3"},
      {"no weight", "raw/edge-weight.csv", "1\nx\n1\n", "raw/edge-weight.csv:2: weight: \"x\" is not a finite number"},
      {"edge features too few", "raw/edge-feat.csv", "1\n", "raw/edge-feat.csv: rows: the file has 1, expected 3"},
      {"node features too many", "raw/node-feat.csv", "1\n1\n1\n1\n1\n",
       "raw/node-feat.csv: rows: the file has 5, expected 4"},
      {"ragged features", "raw/node-feat.csv", "1,1\n1\n1,1\n1,1\n",
       "raw/node-feat.csv:2: columns: the row has 1, expected 2"},
      {"a feature twice", "raw/node-feat-sparse.csv", "0,9\n0,9\n",
       "raw/node-feat-sparse.csv: node 0: feature 9 stands twice"},
      {"a feature of no node", "raw/node-feat-sparse.csv", "4,1\n",
       "raw/node-feat-sparse.csv:1: node: 4 is outside 0..3"},
      {"positions too few", "raw/node-pos.csv", "1\n", "raw/node-pos.csv: rows: the file has 1, expected 4"},
      {"a position not finite", "raw/node-pos.csv", "1\n2\n3\ninf\n",
       "raw/node-pos.csv:4: column 1: \"inf\" is not a finite number"},
      {"too many columns of positions", "raw/node-pos.csv", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n",
       "raw/node-pos.csv: 17 columns; 1..16 are accepted for positions"},
      {"no label", "raw/node-label.csv", "1\nred\n1\n1\n", "raw/node-label.csv:2: target 1: \"red\" is neither"},
      {"a node in two splits", "split/plain/test.csv", "0\n",
       "split/plain/test.csv:1: node: 0 stands already in split/plain/train.csv:2"},
      {"no node in a split", "split/plain/test.csv", "9\n", "split/plain/test.csv:1: node: 9 is outside 0..3"},
  };
  for (const auto& c : kCases) {
    Files files = SmallGraph();
    files[c.file] = c.text;
    const auto summary = ImportGraphInto(temp_.path() / "store", Options(files));
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << summary.status();
    EXPECT_THAT(std::string(summary.status().message()), HasSubstr(c.want)) << c.why;
  }
}

TEST_F(OgbNodesImport, FeaturesOfNoEdgeAreRefused) {
  Files files = SmallGraph();
  files.erase("raw/num-edge-list.csv");
  files.erase("raw/edge-weight.csv");
  files["raw/edge.csv"] = "";
  const absl::Status status = ImportGraphInto(temp_.path() / "store", Options(files)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(status.message(), "raw/edge-feat.csv: rows: the file has 3, expected 0 (as raw/edge.csv)");
}

TEST_F(OgbNodesImport, MoreFeatureColumnsThanAStoreHoldsAreRefused) {
  std::string row = "0";
  for (uint64_t column = 0; column < kMaxFeatureColumns; ++column) row += ",0";
  Files files = SmallGraph();
  files["raw/node-feat.csv"] = row + "\n";
  const absl::Status status = ImportGraphInto(temp_.path() / "store", Options(files)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(status.message(), "raw/node-feat.csv:1: columns: the row has 4194305, expected at most 4194304");
}

struct Expected {
  const char* name;
  int64_t nodes, edges, self_loops, max_degree, nonzeros, width, classes;
  std::array<int64_t, 3> split;
};

// The expected figures are those of shared/data/node/*/stats.json, except for citeseer's largest degree. The
// file counts a self-loop twice there, and the importer counts it once.
TEST_F(OgbNodesImport, SharedSets) {
  constexpr Expected kSets[] = {
      {"cora", 2708, 10556, 0, 168, 49216, 1433, 7, {140, 500, 1000}},
      {"citeseer", 3327, 9228, 124, 99, 105165, 3703, 6, {120, 500, 1000}},
      {"musae_git", 37700, 578006, 0, 9458, 690358, 4005, 2, {22620, 7540, 7540}},
  };
  const fs::path shared = fs::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "node";
  if (!fs::exists(shared)) GTEST_SKIP() << "the shared data sets of nodes are not here";
  for (const Expected& set : kSets) {
    // First the matrix is imported, and then its text form.
    for (const bool text : {false, true}) {
      const fs::path source = temp_.path() / "copy";
      fs::remove_all(source);
      fs::copy(shared / set.name, source, fs::copy_options::recursive);
      if (text) fs::remove(source / "raw/node-feat-sparse.npz");
      const auto graph = Make({.source = source});
      ASSERT_NE(graph, nullptr) << set.name;
      const GraphSummary& summary = graph->summary();
      EXPECT_EQ(summary.nodes, set.nodes) << set.name;
      EXPECT_EQ(summary.edges, set.edges) << set.name;
      EXPECT_EQ(summary.self_loops, set.self_loops) << set.name;
      EXPECT_EQ(summary.max_degree, set.max_degree) << set.name;
      EXPECT_EQ(summary.isolated_nodes, 0) << set.name;
      EXPECT_EQ(summary.node_features.type, DataType::kSparse) << set.name;
      EXPECT_EQ(summary.node_feature_nonzeros, set.nonzeros) << set.name;
      EXPECT_EQ(summary.node_features.width, set.width) << set.name;
      EXPECT_TRUE(std::get<SparseFeatures>(graph->view().node_features).values.empty()) << set.name;
      EXPECT_EQ(summary.min_label, 0) << set.name;
      EXPECT_EQ(summary.max_label, set.classes - 1) << set.name;
      EXPECT_TRUE(summary.integer_labels) << set.name;
      EXPECT_EQ(summary.num_missing_labels, 0) << set.name;
      EXPECT_EQ(summary.split_nodes, set.split) << set.name;
    }
  }
}

TEST_F(OgbNodesImport, SharedEdgesWithoutLabels) {
  const fs::path source = fs::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "edges" / "snap_ego_twitter";
  if (!fs::exists(source)) GTEST_SKIP() << "the shared data set snap_ego_twitter is not here";
  for (const fs::path& from : {source, source / "raw" / "edge.csv.gz"}) {
    const auto graph = Make({.source = from});
    ASSERT_NE(graph, nullptr) << from;
    const GraphSummary& summary = graph->summary();
    EXPECT_EQ(summary.nodes, 81306) << from;
    EXPECT_EQ(summary.self_loops, 14) << from;
    EXPECT_EQ(summary.edges, 2 * 1342310 - 14) << from;
    EXPECT_EQ(summary.max_degree, 3383) << from;
    EXPECT_EQ(summary.num_targets, 0) << from;
    EXPECT_THAT(summary.split_nodes, ElementsAre(0, 0, 0)) << from;
  }
}

}  // namespace
}  // namespace permafrost::data
