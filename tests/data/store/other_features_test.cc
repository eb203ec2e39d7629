#include "data/store/other_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "data/ogb_folder.h"
#include "data/store/graph.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

// A graph whose nodes 0..3 have 0, 1, 2 and 300 in-edges.
class StarGraph final : public Graph {
 public:
  StarGraph() {
    summary_.nodes = 4;
    summary_.edges = 303;
    summary_.max_degree = 300;
    view_.nodes = 4;
    view_.edges = 303;
    view_.in.offsets = Column<uint64_t>(offsets_);
    view_.in.neighbors = Column<NodeId>(neighbors_);
  }
  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  const NodeNames& names() const override { return names_; }
  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t, uint64_t)>&) const override { return absl::OkStatus(); }
  uint64_t mapped_bytes() const override { return 7; }

 private:
  const std::array<uint64_t, 5> offsets_{0, 0, 1, 3, 303};
  const std::vector<NodeId> neighbors_ = std::vector<NodeId>(303, 0);
  GraphSummary summary_;
  GraphView view_;
  NodeNames names_;
};

std::vector<uint32_t> ColumnsOf(const Graph& graph) {
  const auto rows = ReadRows(std::get<SparseFeatures>(graph.view().node_features), 0, graph.view().nodes);
  EXPECT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->values.empty());
  for (size_t v = 0; v < 4; ++v) EXPECT_EQ(rows->offsets[v + 1] - rows->offsets[v], 1U) << "one column a node";
  return {rows->columns.begin(), rows->columns.end()};
}

TEST(FeaturedGraph, EachNodeHasAColumnOfItsOwn) {
  const auto graph = WithFeatures(std::make_shared<StarGraph>(), MadeFeatures::kOwnColumn);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ColumnsOf(**graph), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ((*graph)->summary().node_features.type, DataType::kSparse);
  EXPECT_EQ((*graph)->summary().node_features.width, 4);
  EXPECT_EQ((*graph)->summary().node_feature_nonzeros, 4);
  EXPECT_EQ((*graph)->view().edges, 303U) << "the rest is the other graph's";
  EXPECT_EQ((*graph)->mapped_bytes(), 7U);
}

TEST(FeaturedGraph, DegreesBeyondTheCapShareAColumn) {
  const auto graph = WithFeatures(std::make_shared<StarGraph>(), MadeFeatures::kDegree);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ColumnsOf(**graph), (std::vector<uint32_t>{0, 1, 2, 255}));
  EXPECT_EQ((*graph)->summary().node_features.width, 256);
}

TEST(FeaturedGraph, DegreesHaveTheSameColumnsOnEveryGraphUnlessTheyAreItsOwn) {
  GraphSummary summary;
  for (const int64_t most : {0, 9, 255, 1000}) {
    summary.max_degree = most;
    EXPECT_EQ(SummaryWith(MadeFeatures::kDegree, summary).node_features.width, 256) << most;
    EXPECT_EQ(SummaryWith(MadeFeatures::kOwnDegree, summary).node_features.width, std::min<int64_t>(most, 255) + 1);
  }
  const auto star = WithFeatures(std::make_shared<StarGraph>(), MadeFeatures::kOwnDegree);
  ASSERT_TRUE(star.ok()) << star.status();
  EXPECT_EQ(ColumnsOf(**star), (std::vector<uint32_t>{0, 1, 2, 255}));
}

TEST(FeaturedGraph, AConstantIsOneDenseColumn) {
  const auto graph = WithFeatures(std::make_shared<StarGraph>(), MadeFeatures::kConstant);
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::array<float, 4> rows{};
  ASSERT_TRUE(ReadRows(std::get<DenseFeatures>((*graph)->view().node_features), 0, 4, rows.data()).ok());
  EXPECT_TRUE(std::ranges::all_of(rows, [](float value) { return value == 1; }));
  EXPECT_EQ((*graph)->summary().node_features.width, 1);
}

// Returns a set without node features. In the graph of 300 nodes, all others point to the last one.
Files BareSet() {
  Files files = SmallSet();
  files.erase("raw/node-feat.csv");
  files.erase("raw/edge-feat.csv");
  files["raw/num-node-list.csv"] = "3\n1\n300\n";
  files["raw/num-edge-list.csv"] = "4\n0\n299\n";
  files["raw/edge.csv"] = "2,0\n0,1\n2,0\n1,2\n";
  for (int v = 0; v < 299; ++v) files["raw/edge.csv"] += std::to_string(v) + ",299\n";
  return files;
}

TEST(FeaturedSet, ADegreeIsACategory) {
  TempDir temp;
  const auto set = MakeStore(temp.path(), BareSet(), {.inverse_edges = InverseEdges::kKeep});
  ASSERT_NE(set, nullptr);
  const auto made = WithFeatures(set, MadeFeatures::kDegree);
  ASSERT_TRUE(made.ok()) << made.status();
  const FeatureSummary& summary = (*made)->summary().node_features;
  EXPECT_EQ(summary.type, DataType::kInt32);
  EXPECT_EQ(summary.max, std::vector<double>{255}) << "whatever the set's degrees are";
  const FeatureTable table = *(*made)->node_features();
  ASSERT_EQ(table.ints.size(), 304U);
  EXPECT_EQ(std::vector(table.ints.begin(), table.ints.begin() + 5), (std::vector<int32_t>{2, 1, 1, 0, 0}));
  EXPECT_EQ(table.ints.back(), 255) << "more are as many";
  EXPECT_NE((*made)->checksum(), set->checksum());
  EXPECT_EQ((*made)->split(Split::kTrain)->size(), 2U);
  EXPECT_EQ((*made)->edge_features()->width, 0);
}

TEST(FeaturedSet, AConstantIsOne) {
  TempDir temp;
  const auto set = MakeStore(temp.path(), SmallSet());
  ASSERT_NE(set, nullptr);
  const auto made = WithFeatures(set, MadeFeatures::kConstant);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->summary().node_features.type, DataType::kFloat32);
  EXPECT_EQ((*made)->summary().node_features.width, 1) << "in place of the set's own";
  EXPECT_EQ(ToVector((*made)->node_features()->floats), std::vector<float>(5, 1.0F));
}

}  // namespace
}  // namespace permafrost::data
