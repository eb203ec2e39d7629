#include "data/sampling/link_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "data/memory_graph.h"

namespace permafrost::data {
namespace {

SampledSubgraph SampleOf(const GraphView& view, NodeId seeds, bool last_hop_apart, bool places) {
  auto sampler = NeighborSampler::Create(
      view, {.fan_outs = {spec::kAllNeighbors, 3}, .last_hop_apart = last_hop_apart, .seed = 8}, 2);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  std::vector<NodeId> nodes(seeds);
  std::iota(nodes.begin(), nodes.end(), 0U);
  SampledSubgraph out;
  EXPECT_TRUE((*sampler)->Sample(nodes, 1, places, nullptr, out).ok());
  return out;
}

// (row, source row or node of the last hop, place) of an edge
using Edge = std::tuple<int64_t, int64_t, uint64_t>;
std::vector<Edge> EdgesOf(const SampledSubgraph& s) {
  std::vector<Edge> edges;
  const auto inner = std::ssize(s.sources);
  for (size_t row = 0; row + 1 < s.offsets.size(); ++row) {
    for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
      const auto at = static_cast<size_t>(e);
      const int64_t source = e < inner ? s.sources[at] : 1'000'000 + s.last_neighbors[static_cast<size_t>(e - inner)];
      edges.emplace_back(static_cast<int64_t>(row), source, s.edge_places.empty() ? 0 : s.edge_places[at]);
    }
  }
  return edges;
}

TEST(ExcludeEdges, TakesOutBothDirectionsOfThePairsAndNothingElse) {
  const auto graph = RandomGraph(200, 3000, 6);
  for (const bool apart : {false, true}) {
    for (const bool places : {false, true}) {
      SampledSubgraph s = SampleOf(graph->view(), 60, apart, places);
      const std::vector<Edge> before = EdgesOf(s);
      const SampledSubgraph whole = s;
      // Takes the pairs of every third edge between seeds, and one pair without an edge.
      std::vector<int64_t> sources, targets;
      for (const auto& [row, source, place] : before) {
        if (row < 60 && source < 60 && (row + source) % 3 == 0) {
          sources.push_back(source);
          targets.push_back(row);
        }
      }
      ASSERT_GT(sources.size(), 20U);
      sources.push_back(59);
      targets.push_back(58);
      std::set<std::pair<int64_t, int64_t>> gone;
      for (size_t i = 0; i < sources.size(); ++i) {
        gone.emplace(targets[i], sources[i]);
        gone.emplace(sources[i], targets[i]);
      }
      ExcludeEdges({sources, targets}, s);
      std::vector<Edge> expected;
      for (const Edge& edge : before) {
        if (!gone.contains({std::get<0>(edge), std::get<1>(edge)})) expected.push_back(edge);
      }
      EXPECT_LT(expected.size(), before.size());
      EXPECT_EQ(EdgesOf(s), expected);
      EXPECT_EQ(s.nodes, whole.nodes);
      EXPECT_EQ(s.row_ends, whole.row_ends);
      EXPECT_EQ(s.edge_places.size(), places ? expected.size() : 0);
      // Excluding the same edges again changes nothing.
      const SampledSubgraph once = s;
      ExcludeEdges({sources, targets}, s);
      EXPECT_EQ(EdgesOf(s), EdgesOf(once));
    }
  }
}

}  // namespace
}  // namespace permafrost::data
