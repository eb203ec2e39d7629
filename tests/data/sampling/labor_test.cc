// LABOR-0, in which the nodes of a hop share their draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

using testing::HasSubstr;

std::vector<NodeId> SomeNodes(NodeId count) {
  std::vector<NodeId> nodes(count);
  std::iota(nodes.begin(), nodes.end(), 0U);
  return nodes;
}

SampledSubgraph SampleBy(spec::SamplerKind sampler, const GraphView& view, std::vector<int64_t> fan_outs,
                         std::span<const NodeId> seeds, uint64_t sample = 0, int threads = 2) {
  auto made = NeighborSampler::Create(view, {.fan_outs = std::move(fan_outs), .sampler = sampler, .seed = 6}, threads);
  EXPECT_TRUE(made.ok()) << made.status();
  SampledSubgraph out;
  EXPECT_TRUE((*made)->Sample(seeds, sample, true, nullptr, out).ok());
  return out;
}

// For a node of degree d > K, the mean is K and the variance is d * K/d * (1 - K/d), because its draws are
// independent.
TEST(Labor, DrawsAsManyAsTheFanOutInTheMean) {
  constexpr int64_t kFanOut = 8;
  constexpr int kSamples = 400;
  const auto graph = RandomGraph(300, 6000, 4);
  const std::vector<NodeId> seeds = SomeNodes(300);
  std::vector<double> drawn(300);
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    const SampledSubgraph s = SampleBy(spec::SamplerKind::kLabor, graph->view(), {kFanOut}, seeds, sample);
    for (size_t row = 0; row < 300; ++row) drawn[row] += static_cast<double>(s.offsets[row + 1] - s.offsets[row]);
  }
  int above = 0;
  for (NodeId node = 0; node < 300; ++node) {
    const std::vector<NodeId> neighbors = graph->NeighborsOf(node);
    const auto degree = static_cast<double>(neighbors.size());
    if (degree <= kFanOut) {
      EXPECT_EQ(drawn[node], kSamples * degree) << "all of them";
      continue;
    }
    ++above;
    // Parallel edges share a draw, which at most doubles the variance here.
    const double deviation = std::sqrt(2 * kFanOut * (1 - kFanOut / degree) / kSamples);
    EXPECT_NEAR(drawn[node] / kSamples, kFanOut, 5 * deviation) << "node " << node << " of degree " << degree;
  }
  EXPECT_GT(above, 100);
}

TEST(Labor, NodesOfAHopShareTheirDrawsSoThatFewerAreFound) {
  // 200 nodes with the same 100 in-neighbours.
  std::vector<TestEdge> edges;
  for (NodeId target = 100; target < 300; ++target) {
    for (NodeId source = 0; source < 100; ++source) edges.push_back({source, target});
  }
  const MemoryGraph same(300, edges);
  std::vector<NodeId> seeds(200);
  std::iota(seeds.begin(), seeds.end(), 100U);
  const SampledSubgraph labor = SampleBy(spec::SamplerKind::kLabor, same.view(), {10}, seeds);
  EXPECT_EQ(labor.edges(), (labor.row_ends[1] - 200) * 200) << "each drew the same";
  EXPECT_LT(labor.row_ends[1] - 200, 30);
  EXPECT_EQ(SampleBy(spec::SamplerKind::kNeighbor, same.view(), {10}, seeds).row_ends[1] - 200, 100)
      << "here all of them";

  const auto graph = RandomGraph(2000, 60000, 4);
  const std::vector<NodeId> some = SomeNodes(200);
  size_t by_labor = 0, by_neighbor = 0;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    by_labor += SampleBy(spec::SamplerKind::kLabor, graph->view(), {10, 10}, some, sample).nodes.size();
    by_neighbor += SampleBy(spec::SamplerKind::kNeighbor, graph->view(), {10, 10}, some, sample).nodes.size();
  }
  EXPECT_LT(static_cast<double>(by_labor), 0.95 * static_cast<double>(by_neighbor));
}

TEST(Labor, HopsAndSamplesDrawByThemselvesAndThreadsChangeNothing) {
  const auto graph = RandomGraph(400, 40000, 7);
  const std::vector<NodeId> seeds = SomeNodes(150);
  const SampledSubgraph one = SampleBy(spec::SamplerKind::kLabor, graph->view(), {6, 5}, seeds, 3, 1);
  for (const int threads : {2, 3}) {
    const SampledSubgraph other = SampleBy(spec::SamplerKind::kLabor, graph->view(), {6, 5}, seeds, 3, threads);
    EXPECT_EQ(one.nodes, other.nodes);
    EXPECT_EQ(one.edge_places, other.edge_places);
  }
  EXPECT_NE(one.edge_places, SampleBy(spec::SamplerKind::kLabor, graph->view(), {6, 5}, seeds, 4).edge_places);
  // Node 0 has 100 in-neighbours, itself among them. The other 99 have none, so the second hop finds no new node.
  std::vector<TestEdge> edges;
  for (NodeId source = 0; source < 100; ++source) edges.push_back({source, 0});
  const MemoryGraph star(100, edges);
  const SampledSubgraph hop = SampleBy(spec::SamplerKind::kLabor, star.view(), {20, 20}, std::vector<NodeId>{0});
  EXPECT_EQ(hop.row_ends[2], hop.row_ends[1]) << "the others have no neighbours";
  const SampledSubgraph all =
      SampleBy(spec::SamplerKind::kLabor, star.view(), {spec::kAllNeighbors}, std::vector<NodeId>{0});
  EXPECT_EQ(all.edges(), 100);
}

TEST(Labor, RefusesWhatItDoesNotShare) {
  const auto graph = RandomGraph(50, 400, 3, true);
  const NeighborSamplingOptions labor{.fan_outs = {3}, .sampler = spec::SamplerKind::kLabor};
  const auto error = [&](const NeighborSamplingOptions& options) {
    return std::string(NeighborSampler::Create(graph->view(), options, 1).status().message());
  };
  NeighborSamplingOptions options = labor;
  options.replace = true;
  EXPECT_THAT(error(options), HasSubstr("replace: is given with sampler labor"));
  options = labor;
  options.weighted = true;
  EXPECT_THAT(error(options), HasSubstr("weighted: is given with sampler labor"));
  options = labor;
  options.disjoint = true;
  EXPECT_THAT(error(options), HasSubstr("disjoint: is given with sampler labor"));
  options.temporal = spec::TemporalSampling::kLast;
  EXPECT_THAT(error(options), HasSubstr("temporal: is given with sampler labor"));
}

}  // namespace
}  // namespace permafrost::data
