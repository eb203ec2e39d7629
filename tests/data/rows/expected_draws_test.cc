#include "data/rows/frame_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

const auto kGoOn = [] { return true; };

TEST(ExpectedDraws, OfOneSeedAreTheChancesOfItsNeighbors) {
  // Node 0 has the neighbours 1 to 4, and each of them has node 0.
  std::vector<TestEdge> edges;
  for (NodeId n = 1; n <= 4; ++n) {
    edges.push_back({.source = n, .target = 0});
    edges.push_back({.source = 0, .target = n});
  }
  MemoryGraph graph(6, edges);
  std::vector<float> draws(6);
  const std::vector<NodeId> seeds{0};
  const std::vector<int64_t> fan_outs{2};
  ASSERT_TRUE(AddExpectedDraws(graph.view(), seeds, 1, fan_outs, kGoOn, draws).ok());
  for (NodeId n = 1; n <= 4; ++n) EXPECT_NEAR(draws[n], 1 - std::exp(-0.5), 1e-6) << n;
  EXPECT_EQ(draws[5], 0);
  const std::vector<int64_t> all{-1};
  std::ranges::fill(draws, 0.0f);
  ASSERT_TRUE(AddExpectedDraws(graph.view(), seeds, 1, all, kGoOn, draws).ok());
  for (NodeId n = 1; n <= 4; ++n) EXPECT_NEAR(draws[n], 1 - std::exp(-1), 1e-6) << n;
}

// On real samples of a graph with a few popular nodes, expected draws rank the nodes as counted draws do.
TEST(ExpectedDraws, AgreeWithWhatIsDrawn) {
  constexpr uint64_t kNodes = 2000;
  SplitMix64 random(3, 0);
  std::vector<TestEdge> edges;
  for (int i = 0; i < 20'000; ++i) {
    const double u = static_cast<double>(random.Next() >> 11) * 0x1p-53;
    edges.push_back(
        {.source = static_cast<NodeId>(kNodes * u * u * u), .target = static_cast<NodeId>(random.Below(kNodes))});
  }
  MemoryGraph graph(kNodes, edges);
  std::vector<NodeId> seeds(1000);
  std::iota(seeds.begin(), seeds.end(), 0);
  const std::vector<int64_t> fan_outs{5, 3};
  constexpr int64_t kBatch = 50;
  std::vector<float> draws(kNodes);
  ASSERT_TRUE(AddExpectedDraws(graph.view(), seeds, kBatch, fan_outs, kGoOn, draws).ok());
  auto sampler = *NeighborSampler::Create(graph.view(), {.fan_outs = fan_outs}, 1);
  std::vector<double> counted(kNodes);
  constexpr int kEpochs = 20;
  SampledSubgraph subgraph;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (size_t b = 0; b < seeds.size() / kBatch; ++b) {
      const auto batch = std::span(seeds).subspan(b * kBatch, kBatch);
      ASSERT_TRUE(sampler->Sample(batch, static_cast<uint64_t>(epoch) * 1000 + b, false, nullptr, subgraph).ok());
      for (const NodeId node : subgraph.nodes) counted[node] += 1.0 / kEpochs;
    }
  }
  const double expected_sum = std::accumulate(draws.begin(), draws.end(), 0.0);
  const double counted_sum = std::accumulate(counted.begin(), counted.end(), 0.0);
  EXPECT_NEAR(expected_sum / counted_sum, 1, 0.1);
  // The tenth of the nodes that is expected most gets at least 95 % of the draws of the tenth that is drawn most.
  std::vector<NodeId> by_expected(kNodes), by_count(kNodes);
  std::iota(by_expected.begin(), by_expected.end(), 0);
  by_count = by_expected;
  std::ranges::sort(by_expected, [&](NodeId a, NodeId b) { return draws[a] > draws[b]; });
  std::ranges::sort(by_count, [&](NodeId a, NodeId b) { return counted[a] > counted[b]; });
  double first = 0, most = 0;
  for (size_t i = 0; i < kNodes / 10; ++i) {
    first += counted[by_expected[i]];
    most += counted[by_count[i]];
  }
  EXPECT_GT(first, 0.95 * most);
}

TEST(ExpectedDraws, StopWhenAskedToAndReportDamage) {
  MemoryGraph graph(10, {{.source = 1, .target = 0}});
  std::vector<float> draws(10);
  const std::vector<NodeId> seeds{0};
  const std::vector<int64_t> fan_outs{2};
  EXPECT_EQ(AddExpectedDraws(
                graph.view(), seeds, 1, fan_outs, [] { return false; }, draws)
                .code(),
            absl::StatusCode::kCancelled);
  graph.view().in.neighbors = graph.KeepDamaged<NodeId>({1});
  EXPECT_EQ(AddExpectedDraws(graph.view(), seeds, 1, fan_outs, kGoOn, draws).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace permafrost::data
