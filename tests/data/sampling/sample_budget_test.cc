// Samples within a bound on their rows and edges.
#include "data/sampling/neighbor_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/memory_graph.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;
using Options = NeighborSamplingOptions;

SampledSubgraph Draw(const GraphView& view, const Options& options, NodeId seeds, uint64_t sample, int threads) {
  auto sampler = NeighborSampler::Create(view, options, threads);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  std::vector<NodeId> nodes(seeds);
  std::iota(nodes.begin(), nodes.end(), 0U);
  SampledSubgraph out;
  const absl::Status sampled = (*sampler)->Sample(nodes, sample, true, nullptr, out);
  EXPECT_TRUE(sampled.ok()) << sampled;
  return out;
}

bool SameSample(const SampledSubgraph& a, const SampledSubgraph& b) {
  return a.nodes == b.nodes && a.owners == b.owners && a.row_ends == b.row_ends && a.offsets == b.offsets &&
         a.sources == b.sources && a.last_neighbors == b.last_neighbors && a.edge_places == b.edge_places &&
         a.cut == b.cut;
}

// Checks that a sample is a part of the graph: each edge is where its place says, and every row except the seeds is
// the source of an edge.
void CheckEdges(const GraphView& view, const SampledSubgraph& s) {
  ASSERT_EQ(s.edge_places.size(), static_cast<size_t>(s.edges()));
  ASSERT_EQ(s.row_ends.back(), static_cast<int64_t>(s.nodes.size()));
  const auto targets = static_cast<size_t>(s.offsets.size()) - 1;
  std::set<int64_t> met;
  for (size_t row = 0; row < targets; ++row) {
    bool ok = true;
    const Adjacency::Extent extent = view.in.Of(s.nodes[row], ok);
    for (auto e = static_cast<size_t>(s.offsets[row]); e < static_cast<size_t>(s.offsets[row + 1]); ++e) {
      ASSERT_GE(s.edge_places[e], extent.begin);
      ASSERT_LT(s.edge_places[e], extent.end);
      if (e >= s.sources.size()) continue;
      ASSERT_EQ(s.nodes[static_cast<size_t>(s.sources[e])], view.in.neighbors[s.edge_places[e]]);
      met.insert(s.sources[e]);
    }
  }
  for (int64_t row = s.row_ends.front(); row < s.row_ends.back(); ++row) {
    ASSERT_TRUE(met.contains(row)) << "row " << row << " has no edge";
  }
}

const std::pair<const char*, Options> kWays[] = {
    {"few draws", {.fan_outs = {5, 3}}},
    {"all neighbours", {.fan_outs = {spec::kAllNeighbors, spec::kAllNeighbors}}},
    {"all, with replacement in the hop after", {.fan_outs = {spec::kAllNeighbors, 4}, .replace = true}},
    {"with replacement", {.fan_outs = {10, 10, 4}, .replace = true}},
    {"by weight", {.fan_outs = {7, 5}, .weighted = true}},
    {"all are all, by weight too", {.fan_outs = {spec::kAllNeighbors, 4}, .weighted = true}},
    {"disjoint", {.fan_outs = {6, 4}, .disjoint = true}},
    {"three hops", {.fan_outs = {4, 6, 8}}},
};

TEST(SampleBudget, NoSampleIsBeyondItWhateverTheThreads) {
  const auto graph = RandomGraph(900, 30'000, 6, /*weighted=*/true);
  for (const auto& [why, options] : kWays) {
    int64_t cut = 0, whole = 0;
    for (const auto& [most_nodes, most_edges] : {std::pair<int64_t, int64_t>{0, 40},
                                                 {0, 400},
                                                 {0, 3000},
                                                 {60, 0},
                                                 {300, 0},
                                                 {200, 700},
                                                 {1'000'000, 1'000'000}}) {
      Options bounded = options;
      bounded.max_nodes = most_nodes;
      bounded.max_edges = most_edges;
      for (const NodeId seeds : {1U, 40U, 60U}) {
        SCOPED_TRACE(std::string(why) + ", " + std::to_string(most_nodes) + " nodes, " + std::to_string(most_edges) +
                     " edges, " + std::to_string(seeds) + " seeds");
        const SampledSubgraph s = Draw(graph->view(), bounded, seeds, 3, 1);
        if (most_nodes > 0) {
          ASSERT_LE(std::ssize(s.nodes), most_nodes);
        }
        if (most_edges > 0) {
          ASSERT_LE(s.edges(), most_edges);
        }
        CheckEdges(graph->view(), s);
        ASSERT_TRUE(SameSample(s, Draw(graph->view(), bounded, seeds, 3, 4))) << "on four threads";
        const SampledSubgraph free = Draw(graph->view(), options, seeds, 3, 1);
        const bool fits = (most_nodes == 0 || std::ssize(free.nodes) <= most_nodes) &&
                          (most_edges == 0 || free.edges() <= most_edges);
        ASSERT_FALSE(free.cut);
        if (fits) {
          ASSERT_TRUE(SameSample(s, free)) << "what fits is drawn as without a budget";
          ++whole;
        } else {
          ASSERT_TRUE(s.cut);
          ++cut;
        }
      }
    }
    EXPECT_GT(cut, 0) << why;
    EXPECT_GT(whole, 0) << why;
  }
}

TEST(SampleBudget, EdgesOfALastHopApartCount) {
  const auto graph = RandomGraph(900, 30'000, 6, /*weighted=*/false);
  Options options{.fan_outs = {4, 6}, .max_edges = 300};
  const SampledSubgraph rows = Draw(graph->view(), options, 30, 1, 2);
  options.last_hop_apart = true;
  const SampledSubgraph apart = Draw(graph->view(), options, 30, 1, 2);
  EXPECT_LE(apart.edges(), 300);
  EXPECT_EQ(apart.edges(), rows.edges()) << "the draws are the same";
  EXPECT_EQ(apart.edge_places, rows.edge_places);
}

// The targets of a hop share the remaining budget. Targets of equal degree draw equally many edges.
TEST(SampleBudget, AHopIsThinnedEvenly) {
  std::vector<TestEdge> edges;
  edges.reserve(200);
  for (NodeId target = 0; target < 10; ++target) {
    for (NodeId source = 10; source < 30; ++source) edges.push_back({.source = source, .target = target});
  }
  const MemoryGraph graph(30, edges);
  const SampledSubgraph s = Draw(graph.view(), {.fan_outs = {spec::kAllNeighbors}, .max_edges = 75}, 10, 0, 2);
  EXPECT_TRUE(s.cut);
  for (size_t row = 0; row < 10; ++row) EXPECT_EQ(s.offsets[row + 1] - s.offsets[row], 7) << row;
  const SampledSubgraph none = Draw(graph.view(), {.fan_outs = {spec::kAllNeighbors}, .max_edges = 9}, 10, 0, 2);
  EXPECT_EQ(none.edges(), 0) << "less than an edge each";
  EXPECT_EQ(none.offsets, std::vector<int64_t>(11, 0));
  EXPECT_EQ(none.row_ends, (std::vector<int64_t>{10, 10}));
}

TEST(FanOutWithin, TheLargestEqualNumberThatAllOfThemLeaveRoomFor) {
  const struct {
    const char* why;
    std::vector<int64_t> most;
    int64_t left, fan_out, want;
  } kCases[] = {
      {"there is room", {3, 1, 5}, 9, 5, 5},
      {"all neighbours, and room", {3, 1, 5}, 9, spec::kAllNeighbors, spec::kAllNeighbors},
      {"those with few leave more to others", {1, 1, 10, 10}, 12, 10, 5},
      {"one too few", {3, 1, 5}, 8, spec::kAllNeighbors, 4},
      {"equal ones", {4, 4, 4}, 11, 4, 3},
      {"less than one each", {4, 4, 4}, 2, 4, 0},
      {"nothing is left", {4}, 0, 4, 0},
      {"nobody draws", {}, 0, 4, 4},
  };
  for (auto c : kCases) {
    EXPECT_EQ(FanOutWithin(c.most, c.left, c.fan_out), c.want) << c.why;
    if (c.want == c.fan_out) continue;
    int64_t drawn = 0, more = 0;
    for (const int64_t most : c.most) {
      drawn += std::min(most, c.want);
      more += std::min(most, c.want + 1);
    }
    EXPECT_LE(drawn, c.left) << c.why;
    EXPECT_GT(more, c.left) << c.why << ": and not one more each";
  }
}

TEST(SampleBudget, WhatDoesNotGoWithItIsRefused) {
  const auto graph = RandomGraph(100, 900, 6, /*weighted=*/false);
  const auto fields = [&](const Options& options) {
    std::string text;
    for (const FieldViolation& v : GetViolations(NeighborSampler::Create(graph->view(), options, 1).status())) {
      text += v.field + ": " + v.description + "\n";
    }
    return text;
  };
  EXPECT_THAT(fields({.fan_outs = {3}, .sampler = spec::SamplerKind::kLabor, .max_nodes = 10, .max_edges = 10}),
              testing::AllOf(HasSubstr("max_nodes: is given with sampler labor"),
                             HasSubstr("max_edges: is given with sampler labor")));
  EXPECT_THAT(fields({.fan_outs = {3, 3}, .last_hop_apart = true, .max_nodes = 10}),
              HasSubstr("max_nodes: is given with last_hop_apart"));
  EXPECT_THAT(fields({.fan_outs = {3}, .max_edges = -1}), HasSubstr("max_edges: -1 is outside 0.."));
  EXPECT_EQ(fields({.fan_outs = {3}, .max_nodes = 10, .max_edges = 10}), "");

  const auto sampler = NeighborSampler::Create(graph->view(), {.fan_outs = {3}, .max_nodes = 2}, 1);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const std::vector<NodeId> three{1, 2, 3};
  SampledSubgraph out;
  const absl::Status refused = (*sampler)->Sample(three, 0, false, nullptr, out);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetViolations(refused).front().field, "max_nodes");
  EXPECT_THAT(GetViolations(refused).front().description, HasSubstr("2 is less than the 3 seeds of a sample"));
}

}  // namespace
}  // namespace permafrost::data
