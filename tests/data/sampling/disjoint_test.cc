// Samples in which each seed has a subgraph of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/link_sampling.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/row_table.h"

namespace permafrost::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<NodeId> FirstNodes(NodeId count) {
  std::vector<NodeId> nodes(count);
  std::iota(nodes.begin(), nodes.end(), 0U);
  return nodes;
}

SampledSubgraph SampleDisjoint(const GraphView& view, NeighborSamplingOptions options, std::span<const NodeId> seeds,
                               int threads = 2, uint64_t sample = 4) {
  options.disjoint = true;
  auto sampler = NeighborSampler::Create(view, options, threads);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  SampledSubgraph out;
  EXPECT_TRUE((*sampler)->Sample(seeds, sample, true, nullptr, out).ok());
  return out;
}

// The part of one seed: its nodes hop by hop, and its edges as pairs of nodes.
struct Part {
  std::vector<std::set<NodeId>> hops;
  std::multiset<std::pair<NodeId, NodeId>> edges;
  bool operator==(const Part&) const = default;
};

Part PartOf(const SampledSubgraph& s, uint32_t owner) {
  Part part{.hops = std::vector<std::set<NodeId>>(s.row_ends.size()), .edges = {}};
  size_t hop = 0;
  for (size_t row = 0; row < s.nodes.size(); ++row) {
    while (static_cast<int64_t>(row) >= s.row_ends[hop]) ++hop;
    if (s.owners[row] != owner) continue;
    EXPECT_TRUE(part.hops[hop].insert(s.nodes[row]).second) << "twice in one part";
    if (row + 1 >= s.offsets.size()) continue;
    for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
      const auto source = static_cast<size_t>(s.sources[static_cast<size_t>(e)]);
      EXPECT_EQ(s.owners[source], owner) << "an edge leads from one part to another";
      part.edges.emplace(s.nodes[source], s.nodes[row]);
    }
  }
  return part;
}

TEST(DisjointRows, ArePairsOfASeedAndANodeAndAreForgotten) {
  DisjointRows rows;
  std::vector<NodeId> nodes;
  std::vector<uint32_t> owners;
  std::vector<int64_t> found(4);
  for (int round = 0; round < 3; ++round) {
    nodes.clear();
    owners.clear();
    rows.Clear();
    rows.Relabel(std::vector<NodeId>{7, 7, 9, 7}, std::vector<uint32_t>{0, 1, 0, 1}, nodes, owners, found);
    EXPECT_THAT(found, ElementsAre(0, 1, 2, 1));
    EXPECT_EQ(rows.size(), 3U);
    EXPECT_THAT(nodes, ElementsAre(7, 7, 9));
    EXPECT_THAT(owners, ElementsAre(0, 1, 0));
  }
  // The table must number rows as a std::map does, while it grows many times.
  std::map<std::pair<uint32_t, NodeId>, int64_t> known{{{0, 7}, 0}, {{1, 7}, 1}, {{0, 9}, 2}};
  SplitMix64 random(1, 2);
  for (int batch = 0; batch < 40; ++batch) {
    std::vector<NodeId> more;
    std::vector<uint32_t> of;
    for (int i = 0; i < 200; ++i) {
      more.push_back(static_cast<NodeId>(random.Below(300)));
      of.push_back(static_cast<uint32_t>(random.Below(20)));
    }
    found.resize(more.size());
    rows.Relabel(more, of, nodes, owners, found);
    for (size_t i = 0; i < more.size(); ++i) {
      const auto [at, added] = known.try_emplace({of[i], more[i]}, std::ssize(known));
      ASSERT_EQ(found[i], at->second);
    }
  }
  EXPECT_EQ(rows.size(), known.size());
}

TEST(DisjointSampling, WithAllNeighboursEachPartIsTheSampleOfItsSeedAlone) {
  const auto graph = RandomGraph(300, 1500, 5);
  const NeighborSamplingOptions options{.fan_outs = {spec::kAllNeighbors, spec::kAllNeighbors, spec::kAllNeighbors},
                                        .seed = 2};
  const std::vector<NodeId> seeds = FirstNodes(40);
  const SampledSubgraph all = SampleDisjoint(graph->view(), options, seeds);
  ASSERT_EQ(all.owners.size(), all.nodes.size());
  std::map<NodeId, int> stands;
  for (const NodeId node : all.nodes) ++stands[node];
  EXPECT_GT(std::ranges::max_element(stands, {}, &std::pair<const NodeId, int>::second)->second, 20)
      << "a node that many reach stands there for each";
  for (const NodeId seed : seeds) {
    const SampledSubgraph alone = SampleDisjoint(graph->view(), options, std::span(seeds).subspan(seed, 1));
    EXPECT_EQ(PartOf(all, seed), PartOf(alone, 0)) << seed;
  }
}

TEST(DisjointSampling, IsTheSameOnAnyNumberOfThreadsAndTakesASeedTwice) {
  const auto graph = RandomGraph(400, 60000, 7, true);
  std::vector<NodeId> seeds = FirstNodes(150);
  seeds.push_back(3);  // a repeated seed, as from two links of one node
  for (const bool weighted : {false, true}) {
    const NeighborSamplingOptions options{.fan_outs = {6, 5}, .weighted = weighted, .seed = 3};
    const SampledSubgraph one = SampleDisjoint(graph->view(), options, seeds, 1);
    EXPECT_EQ(PartOf(one, 3).hops[0], PartOf(one, 150).hops[0]);
    EXPECT_NE(PartOf(one, 3), PartOf(one, 150)) << "draws of its own";
    for (const int threads : {2, 3}) {
      const SampledSubgraph other = SampleDisjoint(graph->view(), options, seeds, threads);
      EXPECT_EQ(one.nodes, other.nodes);
      EXPECT_EQ(one.owners, other.owners);
      EXPECT_EQ(one.sources, other.sources);
      EXPECT_EQ(one.edge_places, other.edge_places);
    }
    EXPECT_NE(one.nodes, SampleDisjoint(graph->view(), options, seeds, 1, 5).nodes) << "another sample";
  }
}

// The nodes of the last hop have no rows and no owners. The draws are the same.
TEST(DisjointSampling, WithTheLastHopApart) {
  const auto graph = RandomGraph(300, 3000, 5);
  NeighborSamplingOptions options{.fan_outs = {4, 3}, .seed = 2};
  const SampledSubgraph whole = SampleDisjoint(graph->view(), options, FirstNodes(30));
  options.last_hop_apart = true;
  const SampledSubgraph apart = SampleDisjoint(graph->view(), options, FirstNodes(30));
  EXPECT_EQ(apart.edge_places, whole.edge_places);
  EXPECT_EQ(apart.offsets, whole.offsets);
  ASSERT_EQ(apart.nodes.size(), static_cast<size_t>(whole.row_ends[1]));
  EXPECT_EQ(apart.owners.size(), apart.nodes.size());
  for (size_t i = 0; i < apart.last_neighbors.size(); ++i) {
    EXPECT_EQ(apart.last_neighbors[i], whole.nodes[static_cast<size_t>(whole.sources[apart.sources.size() + i])]);
  }
}

TEST(DisjointSampling, ASampleThatIsNotHasNoOwnersAndRefusesASeedTwice) {
  const auto graph = RandomGraph(50, 300, 5);
  const auto sampler = NeighborSampler::Create(graph->view(), {.fan_outs = {3}}, 1);
  ASSERT_TRUE(sampler.ok());
  SampledSubgraph out = SampleDisjoint(graph->view(), {.fan_outs = {3}}, FirstNodes(3));
  ASSERT_TRUE((*sampler)->Sample(FirstNodes(3), 0, false, nullptr, out).ok());
  EXPECT_THAT(out.owners, IsEmpty());
  EXPECT_THAT((*sampler)->Sample(std::vector<NodeId>{1, 1}, 0, false, nullptr, out).message(),
              HasSubstr("stands twice"));
}

// A link is excluded wherever its two nodes meet, even in another seed's part or among the last hop's nodes.
TEST(ExcludeEdges, OfADisjointSubgraphWhereverThePairStands) {
  const auto graph = RandomGraph(60, 900, 6);
  for (const bool apart : {false, true}) {
    const NeighborSamplingOptions options{.fan_outs = {spec::kAllNeighbors, 6}, .last_hop_apart = apart, .seed = 8};
    SampledSubgraph s = SampleDisjoint(graph->view(), options, FirstNodes(30));
    const auto edges_of = [](const SampledSubgraph& of) {
      std::vector<std::tuple<size_t, NodeId, uint64_t>> edges;
      for (size_t row = 0; row + 1 < of.offsets.size(); ++row) {
        for (auto e = static_cast<size_t>(of.offsets[row]); e < static_cast<size_t>(of.offsets[row + 1]); ++e) {
          const NodeId source = e < of.sources.size() ? of.nodes[static_cast<size_t>(of.sources[e])]
                                                      : of.last_neighbors[e - of.sources.size()];
          edges.emplace_back(row, source, of.edge_places[e]);
        }
      }
      return edges;
    };
    const std::vector<int64_t> sources{0, 2, 5}, targets{1, 0, 7};
    std::vector<std::tuple<size_t, NodeId, uint64_t>> want;
    size_t beyond_seeds = 0;
    for (const auto& edge : edges_of(s)) {
      const auto& [row, source, place] = edge;
      const NodeId target = s.nodes[row];
      bool gone = false;
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto a = static_cast<NodeId>(sources[i]), b = static_cast<NodeId>(targets[i]);
        gone |= (source == a && target == b) || (source == b && target == a);
      }
      if (!gone) want.push_back(edge);
      if (gone && row >= 30) ++beyond_seeds;
    }
    ASSERT_GE(beyond_seeds, 3U) << "the test's own: some are to be taken out beyond the seeds' rows";
    ExcludeEdges({sources, targets}, s);
    EXPECT_EQ(edges_of(s), want) << apart;
    EXPECT_EQ(s.offsets.back(), s.edges());
  }
}

}  // namespace
}  // namespace permafrost::data
