#include "data/sampling/edge_draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

TEST(AllAtMost, TellsTheNextNumberWhereverItStands) {
  for (const NodeId most : {0u, 1u, 499u, (1u << 31) - 2, (1u << 31) - 1, 1u << 31, UINT32_MAX - 1, UINT32_MAX}) {
    // The lengths lie below and above a register's.
    for (size_t count = 0; count <= 17; ++count) {
      std::vector<NodeId> nodes(count, most);
      EXPECT_TRUE(AllAtMost(nodes, most)) << most << ", " << count;
      std::fill(nodes.begin(), nodes.end(), 0u);
      EXPECT_TRUE(AllAtMost(nodes, most)) << most << ", " << count;
      if (most == UINT32_MAX) continue;
      for (size_t i = 0; i < count; ++i) {
        for (const NodeId other : {most + 1, UINT32_MAX}) {
          nodes[i] = other;
          EXPECT_FALSE(AllAtMost(nodes, most)) << most << ", " << other << " at " << i << " of " << count;
        }
        nodes[i] = most;
      }
    }
  }
}

// A file may change after its blocks were verified. An id just beyond the last row would be written past the table of
// rows.
TEST(NeighborSampler, OneNeighborThatIsNoRowIsDataLoss) {
  constexpr NodeId kNodes = 500;
  std::vector<NodeId> seeds(kNodes);
  std::iota(seeds.begin(), seeds.end(), 0u);
  for (const size_t place : {0, 1, 2499, 4998, 4999}) {
    for (const NodeId other : {kNodes, UINT32_MAX}) {
      const auto graph = RandomGraph(kNodes, 5000, 2);
      graph->in().neighbors[place] = other;
      for (const bool disjoint : {false, true}) {
        SCOPED_TRACE(testing::Message() << other << " at " << place << (disjoint ? ", disjoint" : ""));
        auto sampler =
            NeighborSampler::Create(graph->view(), {.fan_outs = {spec::kAllNeighbors}, .disjoint = disjoint}, 2);
        ASSERT_TRUE(sampler.ok()) << sampler.status();
        SampledSubgraph out;
        const absl::Status status = (*sampler)->Sample(seeds, 0, true, nullptr, out);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      }
    }
  }
}

// Only a sample that draws from the damaged list fails. The draws of other lists stay the same.
TEST(NeighborSampler, DrawsOfOtherListsAreTheSameBesideOneThatIsDamaged) {
  constexpr NodeId kNodes = 500;
  std::vector<NodeId> seeds(kNodes);
  std::iota(seeds.begin(), seeds.end(), 0u);
  const auto sound = RandomGraph(kNodes, 20000, 2), damaged = RandomGraph(kNodes, 20000, 2);
  const uint64_t begin = damaged->in().offsets[300], end = damaged->in().offsets[301];
  std::fill(damaged->in().neighbors.begin() + static_cast<int64_t>(begin),
            damaged->in().neighbors.begin() + static_cast<int64_t>(end), kNodes);
  for (const auto& [fan_out, replace] : {std::pair(int64_t{5}, false), {5, true}, {spec::kAllNeighbors, false}}) {
    SampledSubgraph of_sound, of_damaged;
    for (const auto& [graph, out] : {std::pair(&sound, &of_sound), {&damaged, &of_damaged}}) {
      auto sampler = NeighborSampler::Create((*graph)->view(), {.fan_outs = {fan_out}, .replace = replace}, 1);
      ASSERT_TRUE(sampler.ok()) << sampler.status();
      EXPECT_EQ((*sampler)->Sample(seeds, 0, true, nullptr, *out).ok(), graph == &sound);
    }
    ASSERT_EQ(of_sound.offsets, of_damaged.offsets);
    const auto of = [](const SampledSubgraph& s, size_t row) {
      std::vector<NodeId> found;
      for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
        found.push_back(s.nodes[static_cast<size_t>(s.sources[static_cast<size_t>(e)])]);
      }
      return found;
    };
    for (size_t row = 0; row < kNodes; ++row) {
      if (row == 300) {
        EXPECT_THAT(of(of_damaged, row), testing::Each(300u));
      } else {
        EXPECT_EQ(of(of_sound, row), of(of_damaged, row)) << row;
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::data
