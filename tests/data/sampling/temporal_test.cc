// Samples that take only edges before a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A graph whose edges have timestamps 0 to `of_times` - 1, many of them equal.
struct TimedGraph {
  TimedGraph(uint64_t nodes, int64_t edges, uint64_t seed, uint64_t of_times) : graph(RandomGraph(nodes, edges, seed)) {
    SplitMix64 random(seed, 9);
    times.reserve(graph->view().in.neighbors.size());
    for (uint64_t i = 0; i < graph->view().in.neighbors.size(); ++i) {
      times.push_back(static_cast<int64_t>(random.Below(of_times)));
    }
    graph->view().in.timestamps = Column<int64_t>(std::span<const int64_t>(times));
  }
  const GraphView& view() const { return graph->view(); }

  std::shared_ptr<MemoryGraph> graph;
  std::vector<int64_t> times;
};

NeighborSamplingOptions Temporal(spec::TemporalSampling strategy, std::vector<int64_t> fan_outs) {
  return {.fan_outs = std::move(fan_outs), .disjoint = true, .temporal = strategy, .seed = 5};
}

SampledSubgraph SampleBefore(const GraphView& view, const NeighborSamplingOptions& options,
                             std::span<const NodeId> seeds, std::span<const int64_t> times, uint64_t sample = 0,
                             int threads = 2) {
  auto sampler = NeighborSampler::Create(view, options, threads);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  SampledSubgraph out;
  const absl::Status status = (*sampler)->Sample(seeds, sample, true, nullptr, out, times);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Compares the edges drawn for each row with all of its in-edges.
TEST(TemporalSampling, NoEdgeIsAsLateAsItsSeedAndLastTakesTheLatest) {
  for (const spec::TemporalSampling strategy : {spec::TemporalSampling::kUniform, spec::TemporalSampling::kLast}) {
    for (const bool replace : {false, true}) {
      if (replace && strategy == spec::TemporalSampling::kLast) continue;
      for (uint64_t round = 0; round < 20; ++round) {
        const TimedGraph graph(120, 2000, round, 1 + round * 10);
        NeighborSamplingOptions options = Temporal(strategy, {5, round % 2 == 0 ? 4 : spec::kAllNeighbors, 3});
        options.replace = replace;
        std::vector<NodeId> seeds;
        std::vector<int64_t> times;
        SplitMix64 random(round, 1);
        for (int i = 0; i < 60; ++i) {
          seeds.push_back(static_cast<NodeId>(random.Below(120)));
          times.push_back(static_cast<int64_t>(random.Below(3 + round * 10)) - 1);
        }
        const SampledSubgraph s = SampleBefore(graph.view(), options, seeds, times, round);
        size_t hop = 0;
        for (size_t row = 0; row + 1 < s.offsets.size(); ++row) {
          while (static_cast<int64_t>(row) >= s.row_ends[hop]) ++hop;
          const int64_t before = times[s.owners[row]];
          bool ok = true;
          const Adjacency::Extent extent = graph.view().in.Of(s.nodes[row], ok);
          std::vector<uint64_t> earlier, drawn;
          for (uint64_t place = extent.begin; place < extent.end; ++place) {
            if (graph.times[place] < before) earlier.push_back(place);
          }
          for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
            const auto at = static_cast<size_t>(e);
            const uint64_t place = s.edge_places[at];
            ASSERT_LT(graph.times[place], before) << "an edge of the seed's future";
            ASSERT_EQ(s.owners[static_cast<size_t>(s.sources[at])], s.owners[row]);
            ASSERT_EQ(s.nodes[static_cast<size_t>(s.sources[at])], graph.view().in.neighbors[place]);
            ASSERT_TRUE(std::ranges::binary_search(earlier, place));
            drawn.push_back(place);
          }
          const int64_t fan_out = options.fan_outs[hop];
          const bool all = fan_out == spec::kAllNeighbors || (!replace && std::ssize(earlier) <= fan_out);
          if (replace && !all) {
            ASSERT_EQ(std::ssize(drawn), earlier.empty() ? 0 : fan_out);
            continue;
          }
          ASSERT_EQ(std::ssize(drawn), all ? std::ssize(earlier) : fan_out);
          ASSERT_EQ(std::set<uint64_t>(drawn.begin(), drawn.end()).size(), drawn.size()) << "an edge twice";
          if (strategy == spec::TemporalSampling::kUniform) continue;
          std::ranges::sort(earlier, std::less<>(),
                            [&](uint64_t place) { return std::pair(graph.times[place], place); });
          std::vector<uint64_t> want(earlier.end() - std::ssize(drawn), earlier.end());
          std::ranges::sort(want);
          ASSERT_EQ(drawn, want) << "the latest, of equal ones those that stand later";
        }
      }
    }
  }
}

TEST(TemporalSampling, WithoutTimesEveryEdgeIsEarlier) {
  const TimedGraph graph(50, 400, 3, 7);
  std::vector<NodeId> seeds(45);
  std::iota(seeds.begin(), seeds.end(), 0U);
  const SampledSubgraph all =
      SampleBefore(graph.view(), Temporal(spec::TemporalSampling::kUniform, {spec::kAllNeighbors}), seeds, {});
  EXPECT_EQ(std::ssize(all.sources), std::ssize(graph.times)) << "the latest possible time is no bound";
  // With kLast and fan-out 1, each seed draws its latest edge.
  const SampledSubgraph last = SampleBefore(graph.view(), Temporal(spec::TemporalSampling::kLast, {1}), seeds, {});
  for (const NodeId seed : seeds) {
    bool ok = true;
    const Adjacency::Extent extent = graph.view().in.Of(seed, ok);
    if (extent.size() == 0) continue;
    const auto begin = graph.times.begin();
    const int64_t most =
        *std::max_element(begin + static_cast<int64_t>(extent.begin), begin + static_cast<int64_t>(extent.end));
    EXPECT_EQ(graph.times[last.edge_places[static_cast<size_t>(last.offsets[seed])]], most);
  }
}

TEST(TemporalSampling, ATimeAtTheEndsOfTheNumbers) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  MemoryGraph graph(3, {{0, 2}, {1, 2}});
  const std::vector<int64_t> times{kLeast, kMost};
  graph.view().in.timestamps = Column<int64_t>(std::span<const int64_t>(times));
  const NeighborSamplingOptions options = Temporal(spec::TemporalSampling::kLast, {2});
  const std::vector<NodeId> seeds{2, 2, 2};
  const SampledSubgraph s = SampleBefore(graph.view(), options, seeds, std::vector<int64_t>{kLeast, 0, kMost});
  EXPECT_THAT(s.offsets, ElementsAre(0, 0, 1, 2)) << "strictly before";
  EXPECT_EQ(SampleBefore(graph.view(), options, seeds, {}).edges(), 6);
}

// In each of 5,000 samples, six of 30 earlier edges are drawn, each with equal probability.
TEST(TemporalSampling, UniformIsUniformOverTheEarlierEdges) {
  constexpr int kEdges = 50, kEarlier = 30, kDrawn = 6, kRounds = 5'000;
  std::vector<TestEdge> edges;
  for (NodeId source = 0; source < kEdges; ++source) edges.push_back({source, kEdges});
  MemoryGraph graph(kEdges + 1, edges);
  std::vector<int64_t> times(kEdges);
  // Times do not follow the order of places.
  for (int i = 0; i < kEdges; ++i) times[static_cast<size_t>(i)] = (i * 7) % kEdges;
  graph.view().in.timestamps = Column<int64_t>(std::span<const int64_t>(times));
  std::map<uint64_t, int> drawn;
  const auto sampler = NeighborSampler::Create(graph.view(), Temporal(spec::TemporalSampling::kUniform, {kDrawn}), 1);
  ASSERT_TRUE(sampler.ok());
  SampledSubgraph s;
  for (uint64_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(
        (*sampler)->Sample(std::vector<NodeId>{kEdges}, round, true, nullptr, s, std::vector<int64_t>{kEarlier}).ok());
    for (const uint64_t place : s.edge_places) ++drawn[place];
  }
  ASSERT_EQ(drawn.size(), static_cast<size_t>(kEarlier));
  constexpr double kExpected = static_cast<double>(kDrawn) * kRounds / kEarlier;
  double chi_square = 0;
  for (const auto& [place, count] : drawn) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  // With 29 degrees of freedom, 58.3 is exceeded once in 1,000 times. Below 10, the draws would be too even.
  EXPECT_LT(chi_square, 58.3);
  EXPECT_GT(chi_square, 10);
}

TEST(TemporalSampling, IsTheSameOnAnyNumberOfThreads) {
  const TimedGraph graph(400, 40000, 7, 50);
  std::vector<NodeId> seeds(300);
  std::iota(seeds.begin(), seeds.end(), 0U);
  const std::vector<int64_t> times(300, 30);
  for (const spec::TemporalSampling strategy : {spec::TemporalSampling::kUniform, spec::TemporalSampling::kLast}) {
    const SampledSubgraph one = SampleBefore(graph.view(), Temporal(strategy, {6, 5}), seeds, times, 2, 1);
    const SampledSubgraph three = SampleBefore(graph.view(), Temporal(strategy, {6, 5}), seeds, times, 2, 3);
    EXPECT_EQ(one.nodes, three.nodes);
    EXPECT_EQ(one.edge_places, three.edge_places);
  }
}

TEST(TemporalSampling, RefusesWhatMakesNoSense) {
  const TimedGraph graph(50, 400, 3, 7);
  const auto untimed = RandomGraph(50, 400, 3, true);
  const auto error = [](const GraphView& view, const NeighborSamplingOptions& options) {
    return std::string(NeighborSampler::Create(view, options, 1).status().message());
  };
  NeighborSamplingOptions options = Temporal(spec::TemporalSampling::kLast, {3});
  EXPECT_THAT(error(graph.view(), options), IsEmpty());
  EXPECT_THAT(error(untimed->view(), options), HasSubstr("the graph's edges have no timestamps"));
  options.disjoint = false;
  EXPECT_THAT(error(graph.view(), options), HasSubstr("without disjoint"));
  options.disjoint = true;
  options.replace = true;
  EXPECT_THAT(error(graph.view(), options), HasSubstr("replace: is given with temporal last"));
  options.replace = false;
  options.weighted = true;
  EXPECT_THAT(error(untimed->view(), options), HasSubstr("weighted: is given with temporal"));
  options.weighted = false;
  const auto sampler = NeighborSampler::Create(graph.view(), options, 1);
  ASSERT_TRUE(sampler.ok());
  SampledSubgraph out;
  EXPECT_THAT((*sampler)->Sample(std::vector<NodeId>{1, 2}, 0, true, nullptr, out, std::vector<int64_t>{3}).message(),
              HasSubstr("one for each of the 2 seeds"));
  const auto plain = NeighborSampler::Create(graph.view(), {.fan_outs = {3}}, 1);
  EXPECT_THAT((*plain)->Sample(std::vector<NodeId>{1}, 0, true, nullptr, out, std::vector<int64_t>{3}).message(),
              HasSubstr("not temporal"));
}

}  // namespace
}  // namespace permafrost::data
