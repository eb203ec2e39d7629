// How often a NeighborSampler draws each neighbour: uniformly, or by the weights of the edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/sample_of.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Options = NeighborSamplingOptions;

// Returns how often each in-neighbour of `node` was drawn over many streams.
std::vector<int64_t> Frequencies(const MemoryGraph& graph, const Options& options, NodeId node, int streams) {
  auto sampler = NeighborSampler::Create(graph.view(), options, 1);
  EXPECT_TRUE(sampler.ok());
  std::vector<int64_t> counts(graph.view().nodes);
  SampledSubgraph out;
  const std::vector<NodeId> seeds = {node};
  for (int stream = 0; stream < streams; ++stream) {
    EXPECT_TRUE((*sampler)->Sample(seeds, static_cast<uint64_t>(stream), false, nullptr, out).ok());
    for (const int64_t source : out.sources) ++counts[out.nodes[static_cast<size_t>(source)]];
  }
  return counts;
}

// Returns a graph in which node `degree` has the in-neighbours 0, 1, ..., `degree` - 1, with these edge weights.
MemoryGraph Star(NodeId degree, const std::vector<float>& weights = {}) {
  std::vector<TestEdge> edges;
  for (NodeId i = 0; i < degree; ++i) edges.push_back({i, degree, weights.empty() ? 1 : weights[i]});
  return {degree + 1, edges, !weights.empty()};
}

TEST(NeighborDraw, EveryNeighbourIsAsLikely) {
  const struct {
    const char* why;
    NodeId degree;
    int64_t fan_out;
    bool replace;
    int streams;
  } kCases[] = {
      {"Floyd's way", 20, 5, false, 20000},
      {"all but one", 8, 7, false, 20000},
      {"drawn again where drawn twice", 300, 100, false, 3000},
      {"drawn to be left out", 120, 100, false, 2000},
      {"with replacement", 20, 15, true, 8000},
      {"one draw each", 3, 1, true, 30000},
  };
  for (const auto& c : kCases) {
    const MemoryGraph star = Star(c.degree);
    const auto counts =
        Frequencies(star, {.fan_outs = {c.fan_out}, .replace = c.replace, .seed = 17}, c.degree, c.streams);
    const double share = static_cast<double>(c.fan_out) / c.degree, mean = share * c.streams;
    // Five standard deviations are allowed. Without replacement, a neighbour is drawn once or not at all.
    const double deviation = std::sqrt(mean * (c.replace ? 1 - 1.0 / c.degree : 1 - share));
    for (NodeId i = 0; i < c.degree; ++i) EXPECT_NEAR(counts[i], mean, 5 * deviation + 1) << c.why << ", " << i;
  }
}

TEST(NeighborDraw, PairsAreAsLikely) {
  // There are 6 pairs of 4 neighbours. A sampler that favours adjacent neighbours would draw them unevenly.
  const MemoryGraph star = Star(4);
  auto sampler = NeighborSampler::Create(star.view(), {.fan_outs = {2}, .seed = 5}, 1);
  std::map<std::set<NodeId>, int> pairs;
  SampledSubgraph out;
  const std::vector<NodeId> seeds = {4};
  for (uint64_t stream = 0; stream < 12000; ++stream) {
    ASSERT_TRUE((*sampler)->Sample(seeds, stream, false, nullptr, out).ok());
    ++pairs[{out.nodes[1], out.nodes[2]}];
  }
  ASSERT_EQ(pairs.size(), 6u);
  for (const auto& [pair, count] : pairs) EXPECT_NEAR(count, 2000, 5 * 41);
}

TEST(NeighborDraw, WithReplacementDrawsByWeight) {
  const std::vector<float> weights = {1, 2, 0, 5, 0.5f, 10, -1, std::numeric_limits<float>::quiet_NaN(), 1.5f};
  const MemoryGraph star = Star(9, weights);
  constexpr int kStreams = 6000, kDraws = 10;
  const auto counts =
      Frequencies(star, {.fan_outs = {kDraws}, .replace = true, .weighted = true, .seed = 3}, 9, kStreams);
  const double sum = 20, draws = kStreams * kDraws;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] > 0 ? weights[i] / sum : 0;
    EXPECT_NEAR(counts[i], share * draws, 5 * std::sqrt(draws * share * (1 - share))) << "weight " << weights[i];
  }
}

TEST(NeighborDraw, WithoutReplacementWeightsAreThoseOfSuccessiveDraws) {
  const std::vector<float> weights = {1, 2, 0, 5, 3, std::numeric_limits<float>::quiet_NaN()};
  const MemoryGraph star = Star(6, weights);
  constexpr int kStreams = 40000;
  const auto counts = Frequencies(star, {.fan_outs = {2}, .weighted = true, .seed = 8}, 6, kStreams);
  // P(i first) + sum over j of P(j first) P(i second | j first)
  const double sum = 11;
  for (size_t i = 0; i < weights.size(); ++i) {
    double share = 0;
    if (weights[i] > 0) {
      share = weights[i] / sum;
      for (size_t j = 0; j < weights.size(); ++j) {
        if (j != i && weights[j] > 0) share += weights[j] / sum * weights[i] / (sum - weights[j]);
      }
    }
    EXPECT_NEAR(counts[i], share * kStreams, 5 * std::sqrt(kStreams * share * (1 - share))) << "weight " << weights[i];
  }
}

TEST(NeighborDraw, FewerEdgesHaveAWeightThanAreWanted) {
  const MemoryGraph star = Star(6, {0, 2, 0, 0, 1, 0}), weightless = Star(3, {0, -2, 0});
  const std::vector<NodeId> center = {6}, other = {3};
  for (const bool replace : {false, true}) {
    const Options options{.fan_outs = {4}, .replace = replace, .weighted = true};
    const SampledSubgraph some = SampleOf(star.view(), options, center);
    EXPECT_EQ(some.sources.size(), replace ? 4u : 2u);
    for (const int64_t source : some.sources)
      EXPECT_THAT(some.nodes[static_cast<size_t>(source)], ::testing::AnyOf(1, 4));
    EXPECT_THAT(SampleOf(weightless.view(), options, other).sources, IsEmpty());
  }
  // Edges that are not drawn leave no gaps: the second target's edges directly follow the first target's.
  std::vector<TestEdge> edges = {{0, 2, 0}, {1, 2, 1}, {0, 3, 1}, {1, 3, 0}};
  const MemoryGraph two(4, edges, true);
  const SampledSubgraph both = SampleOf(two.view(), {.fan_outs = {2}, .weighted = true}, std::vector<NodeId>{2, 3});
  EXPECT_THAT(both.offsets, ElementsAre(0, 1, 2));
  EXPECT_THAT(both.nodes, ElementsAre(2, 3, 1, 0));
  EXPECT_THAT(both.edge_places, ElementsAre(1, 2));
}

TEST(NeighborDraw, AnEdgeWithoutWeightIsNotAmongAllEither) {
  std::vector<float> weights(100, 0);
  for (const size_t heavy : {3, 40, 77}) weights[heavy] = 2;
  const MemoryGraph star = Star(100, weights), few = Star(6, {0, 2, 0, -1, 1, 0});
  for (const bool replace : {false, true}) {
    for (const bool disjoint : {false, true}) {
      const Options options{
          .fan_outs = {spec::kAllNeighbors}, .replace = replace, .weighted = true, .disjoint = disjoint};
      EXPECT_THAT(SampleOf(star.view(), options, std::vector<NodeId>{100}).nodes, ElementsAre(100, 3, 40, 77));
      EXPECT_THAT(SampleOf(few.view(), options, std::vector<NodeId>{6}).nodes, ElementsAre(6, 1, 4));
    }
  }
  // If a budget has room for only some of all neighbours, each edge with a weight is equally likely.
  std::map<NodeId, int> found;
  for (uint64_t stream = 0; stream < 300; ++stream) {
    const Options options{.fan_outs = {spec::kAllNeighbors}, .weighted = true, .max_edges = 2, .seed = 4};
    const SampledSubgraph sample = SampleOf(star.view(), options, std::vector<NodeId>{100}, stream);
    ASSERT_EQ(sample.sources.size(), 2u);
    for (size_t n = 1; n < sample.nodes.size(); ++n) ++found[sample.nodes[n]];
  }
  EXPECT_EQ(found.size(), 3u);
  for (const NodeId node : {3, 40, 77}) EXPECT_NEAR(found[node], 200, 50);
}

TEST(NeighborDraw, ExtremeWeightsDrawSomething) {
  const float inf = std::numeric_limits<float>::infinity(), least = std::numeric_limits<float>::denorm_min();
  for (const std::vector<float>& weights : {std::vector<float>{inf, inf, 1}, {least, least, least}, {least, 1, inf}}) {
    const MemoryGraph star = Star(3, weights);
    for (const bool replace : {false, true}) {
      const Options options{.fan_outs = {2}, .replace = replace, .weighted = true};
      for (uint64_t stream = 0; stream < 50; ++stream) {
        EXPECT_EQ(SampleOf(star.view(), options, std::vector<NodeId>{3}, stream).sources.size(), 2u);
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::data
