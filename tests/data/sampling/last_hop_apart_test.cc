// Samples in which the nodes of the last hop get no rows.
#include <gtest/gtest.h>

#include <numeric>

#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

SampledSubgraph DrawOf(const GraphView& view, const NeighborSamplingOptions& options, NodeId seeds, uint64_t sample) {
  auto sampler = NeighborSampler::Create(view, options, 2);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  std::vector<NodeId> nodes(seeds);
  std::iota(nodes.begin(), nodes.end(), 0u);
  SampledSubgraph out;
  const absl::Status sampled = (*sampler)->Sample(nodes, sample, true, nullptr, out);
  EXPECT_TRUE(sampled.ok()) << sampled;
  return out;
}

// With its last hop apart, a sample holds the same draws.
TEST(LastHopApart, IsDrawnAlike) {
  const auto graph = RandomGraph(900, 9000, 6, true);
  for (const NeighborSamplingOptions& options :
       {NeighborSamplingOptions{.fan_outs = {4, 3}, .seed = 8},
        NeighborSamplingOptions{.fan_outs = {3, spec::kAllNeighbors, 2}},
        NeighborSamplingOptions{.fan_outs = {5, 5}, .replace = true, .weighted = true}}) {
    NeighborSamplingOptions apart = options;
    apart.last_hop_apart = true;
    for (const NodeId seeds : {0u, 1u, 200u}) {
      const SampledSubgraph whole = DrawOf(graph->view(), options, seeds, 3);
      const SampledSubgraph s = DrawOf(graph->view(), apart, seeds, 3);
      const auto rows = static_cast<size_t>(whole.row_ends[whole.row_ends.size() - 2]);
      ASSERT_EQ(s.row_ends, std::vector<int64_t>(whole.row_ends.begin(), whole.row_ends.end() - 1));
      ASSERT_EQ(s.nodes, std::vector<NodeId>(whole.nodes.begin(), whole.nodes.begin() + static_cast<int64_t>(rows)));
      ASSERT_EQ(s.offsets, whole.offsets);
      ASSERT_EQ(s.edge_places, whole.edge_places);
      ASSERT_EQ(s.edges(), whole.edges());
      ASSERT_EQ(static_cast<int64_t>(s.sources.size()),
                s.offsets[static_cast<size_t>(s.row_ends[s.row_ends.size() - 2])]);
      ASSERT_TRUE(std::equal(s.sources.begin(), s.sources.end(), whole.sources.begin()));
      for (size_t e = s.sources.size(); e < whole.sources.size(); ++e) {
        ASSERT_EQ(s.last_neighbors[e - s.sources.size()], whole.nodes[static_cast<size_t>(whole.sources[e])]);
      }
    }
  }
  const auto refused = NeighborSampler::Create(graph->view(), {.fan_outs = {4}, .last_hop_apart = true}, 1).status();
  EXPECT_EQ(GetViolations(refused).front().field, "last_hop_apart");
}

}  // namespace
}  // namespace permafrost::data
