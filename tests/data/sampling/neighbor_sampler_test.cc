#include "data/sampling/neighbor_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/hash.h"
#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/sample_of.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Options = NeighborSamplingOptions;

constexpr int64_t kAll = spec::kAllNeighbors;

std::vector<NodeId> Nodes(NodeId count) {
  std::vector<NodeId> nodes(count);
  std::iota(nodes.begin(), nodes.end(), 0u);
  return nodes;
}

bool Same(const SampledSubgraph& a, const SampledSubgraph& b) {
  return a.nodes == b.nodes && a.row_ends == b.row_ends && a.offsets == b.offsets && a.sources == b.sources &&
         a.edge_places == b.edge_places;
}

// Checks everything that the header says of every sample.
void CheckSubgraph(const MemoryGraph& graph, const Options& options, std::span<const NodeId> seeds,
                   const SampledSubgraph& s) {
  const GraphView& view = graph.view();
  const auto hops = options.fan_outs.size();
  ASSERT_EQ(s.row_ends.size(), hops + 1);
  ASSERT_EQ(s.row_ends[0], static_cast<int64_t>(seeds.size()));
  ASSERT_EQ(s.row_ends.back(), static_cast<int64_t>(s.nodes.size()));
  ASSERT_TRUE(std::equal(seeds.begin(), seeds.end(), s.nodes.begin()));
  ASSERT_EQ(std::set<NodeId>(s.nodes.begin(), s.nodes.end()).size(), s.nodes.size()) << "each node once";
  ASSERT_EQ(s.offsets.size(), static_cast<size_t>(s.row_ends[hops - 1]) + 1);
  ASSERT_EQ(s.offsets[0], 0);
  ASSERT_EQ(s.offsets.back(), static_cast<int64_t>(s.sources.size()));
  ASSERT_EQ(s.edge_places.size(), s.sources.size());
  int64_t found = s.row_ends[0];
  for (size_t hop = 0; hop < hops; ++hop) {
    for (int64_t r = hop == 0 ? 0 : s.row_ends[hop - 1]; r < s.row_ends[hop]; ++r) {
      const auto row = static_cast<size_t>(r);
      const NodeId node = s.nodes[row];
      bool ok = true;
      const Adjacency::Extent extent = view.in.Of(node, ok);
      std::set<uint64_t> places;
      for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
        const uint64_t place = s.edge_places[static_cast<size_t>(e)];
        const int64_t source = s.sources[static_cast<size_t>(e)];
        ASSERT_GE(place, extent.begin);
        ASSERT_LT(place, extent.end);
        ASSERT_LT(source, s.row_ends[hop + 1]) << "a source lies no deeper than the hop";
        ASSERT_EQ(s.nodes[static_cast<size_t>(source)], view.in.neighbors[place]);
        places.insert(place);
        // New nodes are numbered in the order in which they were found.
        ASSERT_LE(source, found);
        if (source == found) ++found;
      }
      const auto drawn = s.offsets[row + 1] - s.offsets[row];
      const auto degree = static_cast<int64_t>(extent.size());
      const int64_t fan_out = options.fan_outs[hop];
      if (fan_out == kAll) {
        ASSERT_EQ(drawn, degree);
      } else if (options.replace) {
        ASSERT_EQ(drawn, degree == 0 ? 0 : fan_out);
        continue;
      } else {
        ASSERT_EQ(drawn, std::min(degree, fan_out));
      }
      ASSERT_EQ(static_cast<int64_t>(places.size()), drawn) << "an edge was drawn twice";
    }
    ASSERT_EQ(found, s.row_ends[hop + 1]) << "hop " << hop + 1;
  }
}

TEST(NeighborSampler, SubgraphsAreWhatTheHeaderSaysAndTheSameOnAnyNumberOfThreads) {
  const struct {
    const char* why;
    std::vector<int64_t> fan_outs;
    bool replace, weighted;
  } kCases[] = {
      {"few draws", {5, 3}, false, false},
      {"fan-outs above most degrees", {40, 40}, false, false},
      {"many draws of large degrees", {100, 60}, false, false},
      {"nearly all of the largest degrees", {450}, false, false},
      {"with replacement", {10, 10, 4}, true, false},
      {"with replacement, more than the degree", {3000}, true, false},
      {"all neighbours", {kAll, kAll}, false, false},
      {"all, then some", {kAll, 2}, false, false},
      {"by weight", {7, 5}, false, true},
      {"by weight, with replacement", {7, 5}, true, true},
      {"all are all, by weight too", {kAll, 4}, false, true},
      {"sixteen hops", std::vector<int64_t>(16, 1), false, false},
  };
  const auto graph = RandomGraph(400, 60000, 7, true);
  std::vector<NodeId> seeds = Nodes(400);
  SplitMix64 random(1, 1);
  Shuffle(std::span(seeds), random);
  seeds.resize(300);
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    const Options options{.fan_outs = c.fan_outs, .replace = c.replace, .weighted = c.weighted, .seed = 11};
    const SampledSubgraph one = SampleOf(graph->view(), options, seeds, 5, 1);
    CheckSubgraph(*graph, options, seeds, one);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(Same(one, SampleOf(graph->view(), options, seeds, 5, threads))) << threads << " threads";
    }
    if (c.fan_outs[0] == kAll && c.fan_outs.back() == kAll) continue;
    EXPECT_FALSE(Same(one, SampleOf(graph->view(), options, seeds, 6, 1))) << "another stream";
    Options other = options;
    other.seed = 12;
    EXPECT_FALSE(Same(one, SampleOf(graph->view(), other, seeds, 5, 1))) << "another seed";
  }
}

// Repeating a sample on another machine relies on these draws.
TEST(NeighborSampler, GoldenSample) {
  std::vector<TestEdge> edges;
  for (NodeId source = 0; source < 30; ++source) edges.push_back({source, 30});
  const MemoryGraph graph(31, edges);
  const std::vector<NodeId> seeds = {30};
  const SampledSubgraph s = SampleOf(graph.view(), {.fan_outs = {5}, .seed = 42}, seeds, 3);
  EXPECT_THAT(s.nodes, ElementsAre(30, 12, 14, 16, 22, 1));
}

// Golden samples for each way to draw. The degrees, 2 to 1,600 and 63 to 65, lie around the bounds between these
// ways.
TEST(NeighborSampler, GoldenSamplesOfEveryWayToDraw) {
  const struct {
    const char* why;
    std::vector<int64_t> fan_outs;
    bool replace, weighted;
    uint64_t want;
  } kCases[] = {
      {"few draws", {10, 5}, false, false, 8799239107112574154u},
      {"runs of draws", {16, 17, 33}, false, false, 3622184225138074518u},
      {"the most draws that are compared", {48}, false, false, 16489267584881044505u},
      {"sorted draws", {49, 60}, false, false, 11762539939072836313u},
      {"with replacement", {20}, true, false, 15064648572613794700u},
      {"by weight, with replacement", {12}, true, true, 2454140767506398497u},
      {"all", {kAll}, false, false, 6782458292232510563u},
  };
  const auto graph = RandomGraph(400, 60000, 7, true);
  std::vector<TestEdge> edges;
  for (NodeId target = 0; target < 3; ++target) {
    for (NodeId source = 0; source < 63 + target; ++source) edges.push_back({source, target});
  }
  const MemoryGraph few(70, edges, true);
  for (const auto& c : kCases) {
    uint64_t hash = 0;
    for (const MemoryGraph* of : {static_cast<const MemoryGraph*>(graph.get()), &few}) {
      const Options options{.fan_outs = c.fan_outs, .replace = c.replace, .weighted = c.weighted, .seed = 11};
      const SampledSubgraph s = SampleOf(of->view(), options, Nodes(60), 5);
      hash ^= Hash64(s.nodes.data(), s.nodes.size() * sizeof(NodeId));
      hash += Hash64(s.edge_places.data(), s.edge_places.size() * sizeof(uint64_t));
    }
    EXPECT_EQ(hash, c.want) << c.why;
  }
}

TEST(NeighborSampler, ReusesItsMemoryAndForgetsTheBatchBefore) {
  const auto graph = RandomGraph(2000, 20000, 3);
  const Options options{.fan_outs = {10, 5}, .seed = 4};
  auto sampler = NeighborSampler::Create(graph->view(), options, 2);
  ASSERT_TRUE(sampler.ok());
  SampledSubgraph out;
  const std::vector<NodeId> all = Nodes(2000);
  for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 500}, {500, 20}, {100, 1000}, {0, 500}}) {
    const std::span<const NodeId> seeds = std::span(all).subspan(begin, count);
    ASSERT_TRUE((*sampler)->Sample(seeds, 9, true, nullptr, out).ok());
    EXPECT_TRUE(Same(out, SampleOf(graph->view(), options, seeds, 9)));
  }
  ASSERT_TRUE((*sampler)->Sample(std::span(all).first(500), 9, false, nullptr, out).ok());
  EXPECT_THAT(out.edge_places, IsEmpty()) << "not asked for";
}

TEST(NeighborSampler, LittleMemoryChangesNothing) {
  const auto graph = RandomGraph(2000, 20000, 3);
  for (const bool apart : {false, true}) {
    const Options options{.fan_outs = {10, 5}, .last_hop_apart = apart, .seed = 4};
    const auto sampler = NeighborSampler::Create(graph->view(), options, 2, /*little_memory=*/true);
    ASSERT_TRUE(sampler.ok());
    SampledSubgraph out;
    const std::vector<NodeId> all = Nodes(2000);
    for (const size_t begin : {0, 700, 1500}) {
      const std::span<const NodeId> seeds = std::span(all).subspan(begin, 300);
      ASSERT_TRUE((*sampler)->Sample(seeds, begin, true, nullptr, out).ok());
      EXPECT_TRUE(Same(out, SampleOf(graph->view(), options, seeds, begin)));
    }
  }
}

TEST(NeighborSampler, EdgeCases) {
  //        0 <- 0 (a self-loop), 0 <- 1 twice (parallel edges), 2 <- 0; 3 is isolated
  const MemoryGraph graph(4, {{0, 0}, {1, 0}, {1, 0}, {0, 2}});
  const std::vector<NodeId> none, isolated = {3}, looped = {0}, two = {2, 3};
  EXPECT_THAT(SampleOf(graph.view(), {.fan_outs = {2, 2}}, none).row_ends, ElementsAre(0, 0, 0)) << "no seeds";

  const SampledSubgraph alone = SampleOf(graph.view(), {.fan_outs = {2, 2}}, isolated);
  EXPECT_THAT(alone.nodes, ElementsAre(3));
  EXPECT_THAT(alone.row_ends, ElementsAre(1, 1, 1));
  EXPECT_THAT(alone.offsets, ElementsAre(0, 0));

  const SampledSubgraph loop = SampleOf(graph.view(), {.fan_outs = {9}}, looped);
  EXPECT_THAT(loop.nodes, ElementsAre(0, 1));
  EXPECT_THAT(loop.sources, ElementsAre(0, 1, 1)) << "parallel edges are edges";

  const SampledSubgraph deeper = SampleOf(graph.view(), {.fan_outs = {9, 9}}, two);
  EXPECT_THAT(deeper.nodes, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(deeper.row_ends, ElementsAre(2, 3, 4));
  EXPECT_THAT(deeper.offsets, ElementsAre(0, 1, 1, 4));
  EXPECT_THAT(deeper.sources, ElementsAre(2, 2, 3, 3));
}

TEST(NeighborSampler, Refuses) {
  const MemoryGraph graph(4, {{0, 1}, {1, 0}});
  const struct {
    const char* why;
    Options options;
    const char* field;
  } kCases[] = {
      {"no hops", {}, "fan_outs"},
      {"17 hops", {.fan_outs = std::vector<int64_t>(17, 1)}, "fan_outs"},
      {"none of a node", {.fan_outs = {3, 0}}, "fan_outs"},
      {"another negative", {.fan_outs = {-2}}, "fan_outs"},
      {"too many", {.fan_outs = {65537}}, "fan_outs"},
      {"no weights", {.fan_outs = {1}, .weighted = true}, "weighted"},
  };
  for (const auto& c : kCases) {
    const auto sampler = NeighborSampler::Create(graph.view(), c.options, 1);
    ASSERT_EQ(sampler.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_EQ(GetViolations(sampler.status()).front().field, c.field) << c.why;
  }
  auto sampler = NeighborSampler::Create(graph.view(), {.fan_outs = {1}}, 1);
  SampledSubgraph out;
  const std::vector<NodeId> beyond = {0, 4}, twice = {2, 3, 2};
  absl::Status status = (*sampler)->Sample(beyond, 0, false, nullptr, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("4 is none of the graph's 4 rows"));
  status = (*sampler)->Sample(twice, 0, false, nullptr, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("2 stands twice"));
  EXPECT_TRUE((*sampler)->Sample(std::vector<NodeId>{0, 2}, 0, false, nullptr, out).ok()) << "usable after an error";
}

TEST(NeighborSampler, DamageIsDataLoss) {
  const struct {
    const char* why;
    void (*damage)(MemoryGraph&);
    const char* message;
    bool weighted = false;
  } kCases[] = {
      {"offsets that do not hold their checksum",
       [](MemoryGraph& g) { g.view().in.offsets = g.KeepDamaged(g.in().offsets); }, "checksum"},
      {"neighbours that do not", [](MemoryGraph& g) { g.view().in.neighbors = g.KeepDamaged(g.in().neighbors); },
       "checksum"},
      {"weights that do not", [](MemoryGraph& g) { g.view().in.weights = g.KeepDamaged(g.in().weights); }, "checksum",
       true},
      {"a neighbour that is no node: written after its block was verified",
       [](MemoryGraph& g) { std::fill(g.in().neighbors.begin(), g.in().neighbors.end(), 4'000'000'000u); },
       "file changed"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    for (const std::vector<int64_t>& fan_outs : {std::vector<int64_t>{5, 5}, {kAll, kAll}}) {
      const auto graph = RandomGraph(500, 5000, 2, true);
      c.damage(*graph);
      auto sampler = NeighborSampler::Create(graph->view(), {.fan_outs = fan_outs, .weighted = c.weighted}, 2);
      ASSERT_TRUE(sampler.ok());
      if (c.weighted && fan_outs[0] == kAll) continue;
      SampledSubgraph out;
      const absl::Status status = (*sampler)->Sample(Nodes(300), 0, true, nullptr, out);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
  }
  // Damaged offsets may point anywhere, but no read may leave the columns.
  const auto graph = RandomGraph(500, 5000, 2);
  for (size_t i = 0; i < graph->in().offsets.size(); i += 3) graph->in().offsets[i] = ~uint64_t{0} - i;
  for (size_t i = 1; i < graph->in().offsets.size(); i += 3) graph->in().offsets[i] = 5000;
  auto sampler = NeighborSampler::Create(graph->view(), {.fan_outs = {5, 5}}, 2);
  SampledSubgraph out;
  (void)(*sampler)->Sample(Nodes(500), 0, true, nullptr, out);
}

}  // namespace
}  // namespace permafrost::data
