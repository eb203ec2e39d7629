#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<NodeId> FanOut(const Adjacency& adjacency, const std::vector<NodeId>& nodes, int64_t fan_out, uint64_t seed,
                           int threads) {
  std::vector<NodeId> out(nodes.size() * static_cast<size_t>(fan_out));
  const absl::Status sampled = SampleFanOut(adjacency, nodes, fan_out, seed, threads, out);
  EXPECT_TRUE(sampled.ok()) << sampled;
  return out;
}

TEST(SampleFanOut, NeighboursOfEachNodeWhateverTheThreads) {
  const auto graph = RandomGraph(5000, 80000, 3);
  std::vector<NodeId> nodes(9001);
  std::iota(nodes.begin(), nodes.end(), 0u);
  for (NodeId& node : nodes) node = node * 7 % 5000;
  for (const int64_t fan_out : {1, 2, 15, 33}) {
    const auto out = FanOut(graph->view().in, nodes, fan_out, 5, 1);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::vector<NodeId> neighbors = graph->NeighborsOf(nodes[i]);
      for (size_t j = i * static_cast<size_t>(fan_out); j < (i + 1) * static_cast<size_t>(fan_out); ++j) {
        if (neighbors.empty()) {
          ASSERT_EQ(out[j], nodes[i]) << "a node without neighbours yields itself";
        } else {
          ASSERT_TRUE(std::binary_search(neighbors.begin(), neighbors.end(), out[j]));
        }
      }
    }
    EXPECT_EQ(out, FanOut(graph->view().in, nodes, fan_out, 5, 2));
    EXPECT_EQ(out, FanOut(graph->view().in, nodes, fan_out, 5, 3));
    EXPECT_NE(out, FanOut(graph->view().in, nodes, fan_out, 6, 1));
  }
}

TEST(SampleFanOut, IsUniformForSmallAndLargeDegrees) {
  // Beyond 65,536 neighbours every draw has 64 bits of its own.
  const struct {
    NodeId degree;
    int64_t bins;
  } kCases[] = {{7, 7}, {1000, 10}, {100'000, 10}};
  for (const auto& c : kCases) {
    std::vector<TestEdge> edges;
    for (NodeId i = 0; i < c.degree; ++i) edges.push_back({i, c.degree});
    const MemoryGraph star(c.degree + 1, edges);
    const std::vector<NodeId> nodes(10000, c.degree);
    std::vector<int64_t> counts(static_cast<size_t>(c.bins));
    for (const NodeId n : FanOut(star.view().in, nodes, 15, 1, 2)) {
      ++counts[static_cast<size_t>(n) * static_cast<size_t>(c.bins) / c.degree];
    }
    const double draws = 150'000, share = 1.0 / static_cast<double>(c.bins);
    for (const int64_t count : counts) EXPECT_NEAR(count, draws * share, 5 * std::sqrt(draws * share * (1 - share)));
  }
}

TEST(SampleFanOut, Refuses) {
  const MemoryGraph graph(4, {{0, 1}});
  const std::vector<NodeId> nodes = {0, 1}, beyond = {0, 4};
  std::vector<NodeId> out(6);
  const auto message = [&](const std::vector<NodeId>& of, int64_t fan_out) {
    const absl::Status status = SampleFanOut(graph.view().in, of, fan_out, 1, 1, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(nodes, 0), HasSubstr("fan_out: 0"));
  EXPECT_THAT(message(nodes, 65537), HasSubstr("fan_out: 65537"));
  EXPECT_THAT(message(nodes, 4), HasSubstr("room for 6"));
  EXPECT_THAT(message(beyond, 3), HasSubstr("4 is none of the graph's 4 rows"));
  EXPECT_EQ(SampleFanOut({}, nodes, 3, 1, 1, out).code(), absl::StatusCode::kInvalidArgument) << "no edges are kept";
  EXPECT_TRUE(SampleFanOut(graph.view().in, nodes, 3, 1, 1, out).ok());
  EXPECT_THAT(std::vector<NodeId>(out.begin(), out.end()), Each(0));
}

TEST(SampleFanOut, DamageIsDataLoss) {
  for (const int what : {0, 1, 2}) {
    const auto graph = RandomGraph(500, 5000, 2);
    if (what == 0) graph->view().in.offsets = graph->KeepDamaged(graph->in().offsets);
    if (what == 1) graph->view().in.neighbors = graph->KeepDamaged(graph->in().neighbors);
    if (what == 2) std::fill(graph->in().neighbors.begin(), graph->in().neighbors.end(), 500u);
    const std::vector<NodeId> nodes(100, 7);
    std::vector<NodeId> out(400);
    EXPECT_EQ(SampleFanOut(graph->view().in, nodes, 4, 1, 2, out).code(), absl::StatusCode::kDataLoss) << what;
  }
}

}  // namespace
}  // namespace permafrost::data
