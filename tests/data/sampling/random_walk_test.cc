#include "data/sampling/random_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "data/memory_graph.h"

namespace permafrost::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<NodeId> Walk(const GraphView& view, const std::vector<NodeId>& starts, const WalkOptions& options,
                         int threads = 2) {
  std::vector<NodeId> out(starts.size() * static_cast<size_t>(options.length));
  const absl::Status walked = RandomWalks(view, starts, options, threads, out);
  EXPECT_TRUE(walked.ok()) << walked;
  return out;
}

std::vector<NodeId> OutNeighbors(const GraphView& view, NodeId node) {
  bool ok = true;
  const Adjacency::Extent extent = view.out.Of(node, ok);
  return {view.out.neighbors.data() + extent.begin, view.out.neighbors.data() + extent.end};
}

TEST(RandomWalks, FollowOutEdgesWhateverTheThreads) {
  const auto graph = RandomGraph(3000, 20000, 5);
  std::vector<NodeId> starts(2111);
  std::iota(starts.begin(), starts.end(), 0u);
  for (NodeId& start : starts) start = start * 13 % 3000;
  for (const auto& [p, q] : {std::pair(1.0, 1.0), {0.25, 4.0}, {8.0, 0.5}, {1e-300, 1e300}}) {
    for (const int64_t length : {1, 2, 17}) {
      const WalkOptions options{.length = length, .p = p, .q = q, .seed = 3};
      const auto out = Walk(graph->view(), starts, options, 1);
      for (size_t w = 0; w < starts.size(); ++w) {
        const NodeId* walk = out.data() + w * static_cast<size_t>(length);
        ASSERT_EQ(walk[0], starts[w]);
        for (int64_t step = 1; step < length; ++step) {
          const auto neighbors = OutNeighbors(graph->view(), walk[step - 1]);
          if (neighbors.empty()) {
            ASSERT_EQ(walk[step], walk[step - 1]) << "there is no way on";
          } else {
            ASSERT_TRUE(std::binary_search(neighbors.begin(), neighbors.end(), walk[step]));
          }
        }
      }
      EXPECT_EQ(out, Walk(graph->view(), starts, options, 2));
      EXPECT_EQ(out, Walk(graph->view(), starts, options, 3));
      if (length > 2) {
        EXPECT_NE(out, Walk(graph->view(), starts, {.length = length, .p = p, .q = q, .seed = 4}));
      }
    }
  }
}

TEST(RandomWalks, GoldenWalks) {
  const auto graph = RandomGraph(3000, 20000, 5);
  std::vector<NodeId> starts(1500);
  std::iota(starts.begin(), starts.end(), 0u);
  const struct {
    double p, q;
    uint64_t want;
  } kCases[] = {{1, 1, 1826106023042595883u}, {0.5, 2, 7361145292060818487u}};
  for (const auto& c : kCases) {
    const auto out = Walk(graph->view(), starts, {.length = 40, .p = c.p, .q = c.q, .seed = 9});
    EXPECT_EQ(Hash64(out.data(), out.size() * sizeof(NodeId)), c.want) << "p " << c.p;
  }
}

// Compares the transitions of walks on a small graph with the exact probabilities of the model.
TEST(RandomWalks, TransitionsHaveTheirProbabilities) {
  // The graph has triangles, a tail, the parallel edge 0-2 and a self-loop at 3.
  std::vector<TestEdge> edges;
  for (const auto& [a, b] : {std::pair<NodeId, NodeId>{0, 1}, {0, 2}, {0, 2}, {1, 2}, {2, 3}, {3, 4}, {1, 4}, {4, 5}}) {
    edges.push_back({a, b});
    edges.push_back({b, a});
  }
  edges.push_back({3, 3});
  const MemoryGraph graph(6, edges);
  const struct {
    const char* why;
    double p, q;
  } kCases[] = {
      {"uniform", 1, 1},
      {"stays near", 0.5, 2},
      {"goes far", 4, 0.25},
      {"seldom turns back", 100, 1},
      {"turns back nearly always: nearly every candidate is refused", 1e-4, 1},
      {"hardly leaves: the exact draw decides", 1e4, 1e4},
      {"leaves at once", 1, 1e-4},
  };
  for (const auto& c : kCases) {
    const std::vector<NodeId> starts(4000, 2);
    const WalkOptions options{.length = 50, .p = c.p, .q = c.q, .seed = 21};
    const auto out = Walk(graph.view(), starts, options);
    std::map<std::pair<NodeId, NodeId>, std::map<NodeId, double>> counts;
    for (size_t w = 0; w < starts.size(); ++w) {
      const NodeId* walk = out.data() + w * 50;
      for (size_t i = 2; i < 50; ++i) ++counts[{walk[i - 2], walk[i - 1]}][walk[i]];
    }
    int checked = 0;
    for (const auto& [pair, next] : counts) {
      const auto& [before, node] = pair;
      std::map<NodeId, double> weights;
      double sum = 0, visits = 0;
      const auto near = OutNeighbors(graph.view(), before);
      for (const NodeId n : OutNeighbors(graph.view(), node)) {
        const double weight = n == before ? 1 / c.p : std::binary_search(near.begin(), near.end(), n) ? 1 : 1 / c.q;
        weights[n] += weight;
        sum += weight;
      }
      for (const auto& [n, count] : next) visits += count;
      if (visits < 500) continue;
      for (const auto& [n, weight] : weights) {
        const double share = weight / sum, deviation = std::sqrt(visits * share * (1 - share));
        const auto count = next.find(n);
        EXPECT_NEAR(count == next.end() ? 0 : count->second, visits * share, 5 * deviation + 3)
            << c.why << ": " << before << " -> " << node << " -> " << n;
        ++checked;
      }
    }
    EXPECT_GT(checked, 4) << c.why;
  }
}

TEST(RandomWalks, EdgeCases) {
  const MemoryGraph graph(4, {{0, 1}, {2, 2}});
  EXPECT_THAT(Walk(graph.view(), {0}, {.length = 4, .seed = 1}), ::testing::ElementsAre(0, 1, 1, 1)) << "a dead end";
  EXPECT_THAT(Walk(graph.view(), {0}, {.length = 4, .p = 2, .seed = 1}), ::testing::ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(Walk(graph.view(), {2}, {.length = 9, .p = 2, .q = 3}), Each(2)) << "a self-loop";
  EXPECT_THAT(Walk(graph.view(), {3}, {.length = 3}), Each(3)) << "an isolated node";
  EXPECT_TRUE(Walk(graph.view(), {}, {.length = 3}).empty());
}

TEST(RandomWalks, Refuses) {
  const MemoryGraph graph(4, {{0, 1}});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* why;
    WalkOptions options;
    NodeId start;
    size_t room;
    const char* message;
  } kCases[] = {
      {"no nodes", {.length = 0}, 0, 0, "length: 0"},
      {"too long", {.length = 1'000'001}, 0, 1'000'001, "length: 1000001"},
      {"p of 0", {.length = 2, .p = 0}, 0, 2, "p: 0"},
      {"p of NaN", {.length = 2, .p = nan}, 0, 2, "p: nan"},
      {"q below 0", {.length = 2, .q = -1}, 0, 2, "q: -1"},
      {"a start beyond", {.length = 2}, 4, 2, "starts: 4"},
      {"too little room", {.length = 2}, 0, 1, "room for 1"},
  };
  for (const auto& c : kCases) {
    std::vector<NodeId> out(c.room);
    const absl::Status status = RandomWalks(graph.view(), std::vector<NodeId>{c.start}, c.options, 1, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.why;
  }
  GraphView one_way = graph.view();
  one_way.out = {};
  std::vector<NodeId> out(2);
  EXPECT_THAT(RandomWalks(one_way, std::vector<NodeId>{0}, {.length = 2}, 1, out).message(), HasSubstr("out-edges"));
}

TEST(RandomWalks, DamageIsDataLoss) {
  for (const int what : {0, 1, 2, 3}) {
    for (const double p : {1.0, 0.5}) {
      auto graph = RandomGraph(500, 5000, 2);
      // The columns of the in-edges serve as out-edges, too.
      Adjacency& out_edges = graph->view().out;
      if (what == 0) out_edges.offsets = graph->KeepDamaged(graph->in().offsets);
      if (what == 1) out_edges.neighbors = graph->KeepDamaged(graph->in().neighbors);
      if (what == 2) out_edges.neighbors = graph->Keep(std::vector<NodeId>(graph->view().edges, 500u));
      if (what == 3) {
        // With unsorted neighbours and falling offsets, walks may go anywhere in the graph, but not outside it.
        std::vector<uint64_t> offsets(501);
        SplitMix64 random(1, 2);
        for (uint64_t& offset : offsets) offset = random.Next() >> 40;
        out_edges.offsets = graph->Keep(offsets);
      }
      std::vector<NodeId> starts(200), out(200 * 30);
      std::iota(starts.begin(), starts.end(), 0u);
      const absl::Status status = RandomWalks(graph->view(), starts, {.length = 30, .p = p}, 2, out);
      if (what < 3) {
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what;
      }
      for (const NodeId node : out) ASSERT_LT(node, 500u);
    }
  }
}

}  // namespace
}  // namespace permafrost::data
