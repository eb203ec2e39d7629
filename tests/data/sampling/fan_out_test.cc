#include "data/sampling/edge_draw.h"

#include <gtest/gtest.h>

#include <vector>

#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

TEST(FanOut, MostThatAHopDraws) {
  const struct {
    const char* why;
    uint64_t degree;
    int64_t fan_out;
    bool replace;
    uint64_t want;
  } kCases[] = {
      {"all", 3000, spec::kAllNeighbors, false, 3000},
      {"all of none", 0, spec::kAllNeighbors, false, 0},
      {"all, whatever the way of drawing", 3000, spec::kAllNeighbors, true, 3000},
      {"fewer than there are", 10, 4, false, 4},
      {"more than there are", 2, 4, false, 2},
      {"with replacement no degree bounds it", 1, 65536, true, 65536},
      {"but nothing is drawn of nothing", 0, 65536, true, 0},
  };
  for (const auto& c : kCases) EXPECT_EQ(MaxDrawn(c.degree, c.fan_out, c.replace), c.want) << c.why;
}

// Admission relies on this: without weights, the sampler draws exactly this many.
TEST(FanOut, IsWhatTheSamplerDraws) {
  const auto graph = RandomGraph(500, 2000, 3);
  const std::vector<NodeId> seeds = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const int64_t fan_out : {spec::kAllNeighbors, int64_t{1}, int64_t{3}, int64_t{700}}) {
    for (const bool replace : {false, true}) {
      auto sampler = NeighborSampler::Create(graph->view(), {.fan_outs = {fan_out}, .replace = replace, .seed = 1}, 2);
      ASSERT_TRUE(sampler.ok()) << sampler.status();
      SampledSubgraph subgraph;
      ASSERT_TRUE((*sampler)->Sample(seeds, 0, false, nullptr, subgraph).ok());
      uint64_t edges = 0;
      for (const NodeId seed : seeds) edges += MaxDrawn(graph->NeighborsOf(seed).size(), fan_out, replace);
      EXPECT_EQ(subgraph.sources.size(), edges) << "fan-out " << fan_out << ", replace " << replace;
    }
  }
}

TEST(FanOut, Bounds) {
  for (const int64_t accepted : {spec::kAllNeighbors, int64_t{1}, spec::kMaxFanOut})
    EXPECT_TRUE(spec::IsFanOut(accepted)) << accepted;
  for (const int64_t refused : {int64_t{-2}, int64_t{0}, spec::kMaxFanOut + 1})
    EXPECT_FALSE(spec::IsFanOut(refused)) << refused;
}

}  // namespace
}  // namespace permafrost::data
