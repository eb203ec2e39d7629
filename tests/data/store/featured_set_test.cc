#include "data/store/other_features.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

// Without features of nodes; a graph of 300 nodes whose last one the others point to.
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
