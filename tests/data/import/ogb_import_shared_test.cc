#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// The expected figures are those of shared/data/graphs/*/SOURCE.md.
TEST(OgbImport, Zinc12k) {
  const fs::path source = SharedGraphs("zinc12k");
  if (source.empty()) GTEST_SKIP() << "the shared data set zinc12k is not here";
  TempDir temp;
  const auto summary = ImportInto(temp.path() / "store", {.source = source, .split = {}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->all.graphs, 12000);
  EXPECT_EQ(summary->all.nodes, 277123);
  EXPECT_EQ(summary->all.edges, 595880);
  const SizeStatistics& train = summary->splits[0];
  EXPECT_EQ(train.graphs, 10000);
  EXPECT_EQ(summary->splits[1].graphs, 1000);
  EXPECT_EQ(summary->splits[2].graphs, 1000);
  EXPECT_NEAR(train.mean_nodes, 23.0923, 5e-5);
  EXPECT_NEAR(train.std_nodes, 4.4855, 5e-5);
  EXPECT_NEAR(train.mean_edges, 49.6468, 5e-5);
  EXPECT_NEAR(train.std_edges, 10.5343, 5e-5);
  EXPECT_NEAR(train.node_edge_correlation, 0.99183, 5e-6);
  EXPECT_EQ(train.max_nodes, 37);
  EXPECT_EQ(train.max_edges, 84);
  EXPECT_EQ(summary->split_name, "random");
  EXPECT_EQ(summary->num_targets, 1);
  EXPECT_EQ(summary->num_missing_labels, 0);
  EXPECT_EQ(summary->node_features.type, DataType::kInt32);
  EXPECT_EQ(summary->node_features.width, 1);
  EXPECT_LT(summary->node_features.max[0], 28) << "28 atom types";
  EXPECT_THAT(summary->edge_features.min, ElementsAre(1));
  EXPECT_THAT(summary->edge_features.max, ElementsAre(3));
  const auto set = GraphSet::Open(temp.path() / "store");
  ASSERT_TRUE(set.ok()) << set.status();
  double sum = 0, low = 0, high = 0;
  const auto labels = *(*set)->labels();
  const auto graphs = *(*set)->split(Split::kTrain);
  for (const uint32_t graph : graphs) {
    sum += labels[graph];
    low = std::min<double>(low, labels[graph]);
    high = std::max<double>(high, labels[graph]);
  }
  EXPECT_NEAR(sum / 10000, 0.0183, 5e-5);
  EXPECT_NEAR(low, -44.25, 5e-3);
  EXPECT_NEAR(high, 3.85, 5e-3);
  EXPECT_TRUE((*set)->edge_source().ok() && (*set)->edge_target().ok());
}

TEST(OgbImport, Molhiv) {
  const fs::path source = SharedGraphs("molhiv");
  if (source.empty()) GTEST_SKIP() << "the shared data set molhiv is not here";
  TempDir temp;
  const auto summary = ImportInto(temp.path() / "store", {.source = source, .split = {}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->all.graphs, 41127);
  EXPECT_EQ(summary->all.nodes, 1049163);
  EXPECT_EQ(summary->all.edges, 2259376);
  EXPECT_NEAR(summary->all.node_edge_correlation, 0.99451, 5e-6);
  EXPECT_EQ(summary->all.max_nodes, 222);
  EXPECT_EQ(summary->all.max_edges, 502);
  EXPECT_EQ(summary->splits[0].graphs, 32901);
  EXPECT_EQ(summary->splits[1].graphs, 4113);
  EXPECT_EQ(summary->splits[2].graphs, 4113);
  EXPECT_NEAR(summary->splits[0].mean_nodes, 25.2556, 5e-5);
  EXPECT_NEAR(summary->splits[0].std_nodes, 11.9539, 5e-5);
  EXPECT_NEAR(summary->splits[0].mean_edges, 54.0897, 5e-5);
  EXPECT_NEAR(summary->splits[0].std_edges, 26.0623, 5e-5);
  EXPECT_EQ(summary->split_name, "scaffold");
  EXPECT_EQ(summary->node_features.width, 9);
  EXPECT_EQ(summary->edge_features.width, 3);
  const auto set = GraphSet::Open(temp.path() / "store");
  ASSERT_TRUE(set.ok()) << set.status();
  const auto labels = *(*set)->labels();
  const auto positives = [&](Split split) {
    int count = 0;
    const auto graphs = *(*set)->split(split);
    for (const uint32_t graph : graphs) count += labels[graph] == 1;
    return count;
  };
  EXPECT_EQ(positives(Split::kTrain), 1232);
  EXPECT_EQ(positives(Split::kValid), 81);
  EXPECT_EQ(positives(Split::kTest), 130);
  EXPECT_TRUE((*set)->node_features().ok() && (*set)->edge_features().ok() && (*set)->edge_target().ok());
}

}  // namespace
}  // namespace permafrost::data
