// Dense node features that the import converts to another type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "data/batching/block_batch.h"
#include "data/graph_folder.h"
#include "data/store/graph.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kThreeEdges = Npy<int64_t>("<i8", "(2, 3)", {2, 0, 1, 0, 1, 1});

// Returns the rows as a job reads them.
std::vector<float> Rows(const Graph& graph) {
  const auto& dense = std::get<DenseFeatures>(graph.view().node_features);
  std::vector<float> out(graph.view().nodes * static_cast<size_t>(dense.width));
  EXPECT_TRUE(ReadRows(dense, 0, graph.view().nodes, out.data()).ok());
  return out;
}

class FeatureTypes : public ::testing::Test {
 protected:
  ImportOptions Options(const Files& files, FeatureType type) {
    fs::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    return {.source = temp_.path() / "source", .feature_type = type};
  }
  std::shared_ptr<const Graph> Make(const Files& files, FeatureType type, const std::string& store = "store") {
    return MakeGraph(temp_.path() / store, Options(files, type));
  }
  std::string Error(const Files& files, FeatureType type) {
    const auto summary = ImportGraphInto(temp_.path() / "store", Options(files, type));
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << summary.status();
    return std::string(summary.status().message());
  }
  TempDir temp_;
};

TEST_F(FeatureTypes, ValuesRangesAndErrorsOfEachType) {
  // The largest absolute value of the second column is negative. The third column is all zero.
  const Files files = {{"edge_index.npy", kThreeEdges},
                       {"node_feat.npy", Npy<float>("<f4", "(3, 3)",
                                                    {1.00390625f, 0, 0,  //
                                                     0, -127, 0,         //
                                                     2, 63.4f, 0})}};
  const struct {
    FeatureType asked;
    DataType type;
    std::vector<float> values;
    double largest_error;  // of any value, relative to its column's largest absolute value
  } kCases[] = {
      {FeatureType::kFloat32, DataType::kFloat32, {1.00390625f, 0, 0, 0, -127, 0, 2, 63.4f, 0}, 0},
      // 1 + 1/256 lies halfway between two bfloat16 values, and the even one is 1.
      {FeatureType::kBfloat16, DataType::kBfloat16, {1, 0, 0, 0, -127, 0, 2, 63.5f, 0}, 0.00390625 / 2},
      {FeatureType::kFloat16,
       DataType::kFloat16,
       {1.00390625f, 0, 0, 0, -127, 0, 2, 63.40625f, 0},
       (63.40625 - static_cast<double>(63.4f)) / 127},
      // The int8 steps are 2/127 in the first column and 1 in the second.
      {FeatureType::kInt8,
       DataType::kInt8,
       {64 * (2.0f / 127), 0, 0, 0, -127, 0, 127 * (2.0f / 127), 63, 0},
       (static_cast<double>(63.4f) - 63) / 127},
  };
  for (const auto& c : kCases) {
    const auto graph = Make(files, c.asked);
    ASSERT_NE(graph, nullptr);
    const FeatureSummary& summary = graph->summary().node_features;
    EXPECT_EQ(summary.type, c.type);
    EXPECT_EQ(summary.converted_from, c.asked == FeatureType::kFloat32 ? DataType::kNone : DataType::kFloat32);
    EXPECT_EQ(Rows(*graph), c.values) << kFeatureTypeNames.Name(c.asked);
    EXPECT_THAT(summary.max, ElementsAre(c.values[6], c.values[7], 0)) << "of what is stored";
    EXPECT_THAT(summary.min, ElementsAre(0, -127, 0));
    EXPECT_THAT(summary.largest_error, DoubleNear(c.largest_error, 1e-6)) << kFeatureTypeNames.Name(c.asked);
    EXPECT_LE(summary.rms_error, summary.largest_error);
    EXPECT_EQ(summary.rms_error > 0, c.largest_error > 0);
  }
}

TEST_F(FeatureTypes, TheRootMeanSquareIsOverAllValues) {
  // One of the six values is off by 1/256, in a column whose largest value is 2. The others are exact.
  const auto graph = Make(
      {{"edge_index.npy", kThreeEdges}, {"node_feat.npy", Npy<float>("<f4", "(3, 2)", {1.00390625f, 1, 2, 2, 1, 4})}},
      FeatureType::kBfloat16);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(graph->summary().node_features.rms_error, DoubleEq(0.00390625 / 2 / std::sqrt(6.0)));
}

TEST_F(FeatureTypes, SourcesOfEveryTypeAreConverted) {
  const std::string edge_csv = "2,0\n0,1\n1,1\n";
  const struct {
    const char* why;
    Files files;
    DataType from;
  } kCases[] = {
      {"float64", {{"node_feat.npy", Npy<double>("<f8", "(3, 1)", {1, -2, 4})}}, DataType::kFloat32},
      {"float16", {{"node_feat.npy", Npy<uint16_t>("<f2", "(3, 1)", {0x3c00, 0xc000, 0x4400})}}, DataType::kFloat16},
      {"int32", {{"node_feat.npy", Npy<int32_t>("<i4", "(3, 1)", {1, -2, 4})}}, DataType::kInt32},
      {"int64", {{"node_feat.npy", Npy<int64_t>("<i8", "(3, 1)", {1, -2, 4})}}, DataType::kInt64},
      {"text of integers",
       {{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", edge_csv}, {"raw/node-feat.csv", "1\n-2\n4\n"}},
       DataType::kFloat32},
  };
  for (const auto& c : kCases) {
    Files files = c.files;
    if (!files.contains("raw/edge.csv")) files["edge_index.npy"] = kThreeEdges;
    const auto graph = Make(files, FeatureType::kBfloat16);
    ASSERT_NE(graph, nullptr) << c.why;
    EXPECT_THAT(Rows(*graph), ElementsAre(1, -2, 4)) << c.why;
    EXPECT_EQ(graph->summary().node_features.type, DataType::kBfloat16) << c.why;
    EXPECT_EQ(graph->summary().node_features.converted_from, c.from) << c.why;
    EXPECT_EQ(graph->summary().node_features.largest_error, 0) << c.why;
  }
  const auto bytes =
      Make({{"edge_index.npy", kThreeEdges}, {"node_feat.npy", Npy<uint8_t>("|u1", "(3,)", {1, 255, 0})}},
           FeatureType::kInt8);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(Rows(*bytes)[1], 127 * (255.0f / 127));
}

TEST_F(FeatureTypes, AJobGetsTheSameFromAConvertedStoreAsFromItsValuesStoredAsFloats) {
  constexpr int64_t kNodes = 500, kWidth = 37;
  SplitMix64 random(11, 0);
  std::vector<int64_t> ends(2 * 4000);
  for (int64_t& end : ends) end = static_cast<int64_t>(random.Below(kNodes));
  std::vector<float> values(kNodes * kWidth);
  for (float& value : values) value = static_cast<float>(random.Below(1u << 20)) / 4096 - 100;
  const std::string edges = Npy<int64_t>("<i8", "(2, 4000)", ends), shape = "(500, 37)";
  for (const FeatureType type : {FeatureType::kFloat16, FeatureType::kBfloat16, FeatureType::kInt8}) {
    const auto converted =
        Make({{"edge_index.npy", edges}, {"node_feat.npy", Npy<float>("<f4", shape, values)}}, type, "converted");
    ASSERT_NE(converted, nullptr);
    const std::vector<float> stored = Rows(*converted);
    ASSERT_NE(stored, values);
    const auto floats = Make({{"edge_index.npy", edges}, {"node_feat.npy", Npy<float>("<f4", shape, stored)}},
                             FeatureType::kAsIs, "floats");
    ASSERT_NE(floats, nullptr);
    EXPECT_EQ(converted->summary().node_features.min, floats->summary().node_features.min);
    EXPECT_EQ(converted->summary().node_features.max, floats->summary().node_features.max);
    for (const bool means : {false, true}) {
      std::array<BlockBatch, 2> batches;
      for (size_t side = 0; side < 2; ++side) {
        NeighborSamplingOptions sampling{.fan_outs = {5, 4}, .seed = 3};
        sampling.last_hop_apart = means;
        auto batcher = BlockBatcher::Create(side == 0 ? converted : floats, {.sampling = sampling, .threads = 2});
        ASSERT_TRUE(batcher.ok());
        std::vector<NodeId> seeds(40);
        std::iota(seeds.begin(), seeds.end(), NodeId{7});
        SampledSubgraph subgraph;
        ASSERT_TRUE((*batcher)->Sample(seeds, 0, nullptr, subgraph).ok());
        const BlockSizes sizes = *SizesOf(subgraph, floats->view());
        ASSERT_TRUE((*batcher)->Gather(subgraph, sizes, batches[side]).ok());
      }
      ASSERT_FALSE(batches[0].features.empty());
      EXPECT_EQ(batches[0].features, batches[1].features) << kFeatureTypeNames.Name(type) << (means ? " means" : "");
    }
  }
}

TEST_F(FeatureTypes, WhatATypeCannotHoldIsRefusedByItsPlace) {
  const Files array = {{"edge_index.npy", kThreeEdges},
                       {"node_feat.npy", Npy<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 70000})}};
  EXPECT_EQ(Error(array, FeatureType::kFloat16),
            "node_feat.npy: element [2, 1]: 70000 becomes infinite as float16, whose largest value is 65504");
  ASSERT_NE(Make(array, FeatureType::kBfloat16), nullptr);
  EXPECT_THAT(Error({{"edge_index.npy", kThreeEdges},
                     {"node_feat.npy", Npy<float>("<f4", "(3,)", {0, 0, std::numeric_limits<float>::max()})}},
                    FeatureType::kBfloat16),
              HasSubstr("element [2]: 3.40282e+38 becomes infinite as bfloat16"));
  for (const FeatureType type : {FeatureType::kInt8, FeatureType::kFloat32, FeatureType::kFloat16}) {
    EXPECT_EQ(
        Error({{"edge_index.npy", kThreeEdges}, {"node_feat.npy", Npy<float>("<f4", "(3, 1)", {0, NAN, 0})}}, type),
        "node_feat.npy: element [1, 0]: is not a finite number");
  }
  EXPECT_EQ(
      Error({{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", "2,0\n"}, {"raw/node-feat.csv", "1,2\n3,-1e6\n5,6\n"}},
            FeatureType::kFloat16),
      "raw/node-feat.csv:2: column 2: -1e+06 becomes infinite as float16, whose largest value is 65504");
}

TEST_F(FeatureTypes, LargestFloatsAndSmallestOnesHaveAScale) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  const auto graph = Make({{"edge_index.npy", kThreeEdges},
                           {"node_feat.npy", Npy<float>("<f4", "(3, 2)", {kMost, kLeast, -kMost, 0, 0, -kLeast})}},
                          FeatureType::kInt8);
  ASSERT_NE(graph, nullptr);
  const std::vector<float> rows = Rows(*graph);
  EXPECT_TRUE(std::isfinite(rows[0]) && std::isfinite(rows[2]));
  EXPECT_NEAR(rows[0] / kMost, 1, 1e-5);
  EXPECT_EQ(rows[1], 0) << "a 127th of it is no float";
  EXPECT_EQ(graph->summary().node_features.largest_error, 1);
}

TEST_F(FeatureTypes, OnlyDenseFeaturesOfOneLargeGraphAreConverted) {
  EXPECT_EQ(Error({{"edge_index.npy", kThreeEdges}}, FeatureType::kBfloat16),
            "options.feature_type: bfloat16, but the source has no node features; as-is is accepted");
  EXPECT_EQ(Error({{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", "2,0\n"}, {"raw/node-feat-sparse.csv", "0,1\n"}},
                  FeatureType::kInt8),
            "options.feature_type: int8, but the node features are sparse, and only dense ones are converted; as-is is "
            "accepted");
  EXPECT_EQ(Error(SmallSet(), FeatureType::kInt8),
            "options.feature_type: the format ogb-graphs does not use it; accepted with ogb-nodes, npy");
  ImportOptions options{.source = "x", .format = ImportFormat::kOgbGraphs, .feature_type = FeatureType::kInt8};
  options.order = NodeOrder::kDegree;
  const auto violations = GetViolations(CheckImportOptions(options));
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "options.feature_type");
  EXPECT_EQ(violations[1].field, "options.order");
}

}  // namespace
}  // namespace permafrost::data
