#include "data/batching/pair_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/status.h"
#include "data/memory_graph.h"

namespace permafrost::data {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(LinkBatch, HoldsLinksThenTheirNegativesThenPadding) {
  const auto graph = RandomGraph(200, 1500, 2);
  const auto split = SplitLinks(graph, {}, [] { return true; });
  ASSERT_TRUE(split.ok()) << split.status();
  const std::vector<Link>& links = split->links[0];
  constexpr int64_t kNegatives = 3;
  const LinkBatcher batcher(links, NegativeDraw(graph, spec::NegativeSampling::kUniform, 9), kNegatives);
  const std::vector<uint32_t> ids{7, 0, 30, 31};
  LinkBatch batch;
  ASSERT_TRUE(batcher.Make(ids, 2, batcher.pairs(6), batch).ok());
  ASSERT_EQ(batch.labels.size(), 24U);
  EXPECT_EQ(batch.links, 4U);
  EXPECT_TRUE(std::ranges::is_sorted(batch.seeds, std::less_equal()));
  EXPECT_THAT(std::span(batch.labels).first(4), Each(1.0F));
  EXPECT_THAT(std::span(batch.labels).subspan(4, 12), Each(0.0F));
  for (size_t i = 16; i < 24; ++i) {
    EXPECT_TRUE(std::isnan(batch.labels[i]));
    EXPECT_EQ(batch.sources[i], batch.sources[i - 16]);
    EXPECT_EQ(batch.targets[i], batch.targets[i - 16]);
  }
  std::set<NodeId> nodes;
  const auto node = [&](int64_t place) { return batch.seeds.at(static_cast<size_t>(place)); };
  for (size_t i = 0; i < 16; ++i) {
    nodes.insert({node(batch.sources[i]), node(batch.targets[i])});
    const size_t link = i < 4 ? i : (i - 4) / kNegatives;
    EXPECT_EQ(node(batch.sources[i]), links[ids[link]].source);
    bool ok = true;
    EXPECT_EQ(HasEdge(graph->view(), node(batch.sources[i]), node(batch.targets[i]), ok), i < 4);
    if (i < 4) {
      EXPECT_EQ(node(batch.targets[i]), links[ids[i]].target);
    }
  }
  EXPECT_EQ(nodes.size(), batch.seeds.size()) << "a seed is of no pair";
  EXPECT_EQ(batch.positives().sources.size(), 4U);
}

TEST(LinkBatch, DrawsOtherNegativesInEachEpochAndTheSameOnesForALink) {
  const auto graph = RandomGraph(200, 1500, 2);
  const auto split = SplitLinks(graph, {}, [] { return true; });
  const LinkBatcher batcher(split->links[0], NegativeDraw(graph, spec::NegativeSampling::kUniform, 9), 5);
  const auto negatives = [&](std::vector<uint32_t> ids, int64_t epoch) {
    LinkBatch batch;
    EXPECT_TRUE(batcher.Make(ids, epoch, batcher.pairs(std::ssize(ids)), batch).ok());
    std::vector<NodeId> targets;
    for (size_t i = batch.labels.size() - 5; i < batch.labels.size(); ++i) {
      targets.push_back(batch.seeds[static_cast<size_t>(batch.targets[i])]);
    }
    return targets;  // targets of the last link
  };
  EXPECT_EQ(negatives({3, 4, 5}, 0), negatives({5}, 0));
  EXPECT_NE(negatives({5}, 0), negatives({5}, 1));
  EXPECT_NE(negatives({5}, 0), negatives({4}, 0));
}

constexpr WalkBatchOptions kOptions{.length = 6, .per_seed = 3, .negatives = 2, .seed = 5};

// Node v leads to v + 1 and v + 2, as far as these exist.
std::shared_ptr<MemoryGraph> Chain(uint64_t nodes) {
  std::vector<TestEdge> edges;
  for (NodeId v = 0; v + 1 < nodes; ++v) {
    edges.push_back({v, v + 1});
    if (v + 2 < nodes) edges.push_back({v, v + 2});
  }
  return std::make_shared<MemoryGraph>(nodes, edges);
}

WalkBatch Make(const WalkBatchOptions& options, const std::vector<NodeId>& seeds, int64_t room, uint64_t stream,
               int threads = 1, uint64_t nodes = 200) {
  auto batcher = WalkBatcher::Create(Chain(nodes), options, threads);
  EXPECT_TRUE(batcher.ok()) << batcher.status();
  WalkBatch batch;
  const absl::Status made = (*batcher)->Make(seeds, room, stream, batch);
  EXPECT_TRUE(made.ok()) << made;
  return batch;
}

TEST(WalkBatch, WalksGoAlongEdgesAndNegativesAnywhere) {
  const std::vector<NodeId> seeds{7, 190, 42, 199};
  const WalkBatch batch = Make(kOptions, seeds, 5, 0);
  ASSERT_EQ(std::ssize(batch.walks), 5 * 3 * (1 + 2) * 6);
  EXPECT_EQ(batch.seeds, 4);
  std::set<int64_t> drawn;
  for (int64_t w = 0; w < int64_t{4} * 3; ++w) {
    const int64_t* const walk = batch.walks.data() + w * 6;
    EXPECT_EQ(walk[0], seeds[static_cast<size_t>(w / 3)]);
    for (int i = 1; i < 6; ++i) {
      const int64_t moved = walk[i] - walk[i - 1];
      if (walk[i - 1] == 199) {
        EXPECT_EQ(moved, 0) << "a walk stays where no edge begins";
      } else {
        EXPECT_THAT(moved, testing::AnyOf(1, 2));
      }
    }
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t* const negative = batch.walks.data() + (int64_t{5} * 3 + w * 2 + k) * 6;
      EXPECT_EQ(negative[0], walk[0]);
      for (int i = 1; i < 6; ++i) {
        EXPECT_GE(negative[i], 0);
        EXPECT_LT(negative[i], 200);
        drawn.insert(negative[i]);
      }
    }
  }
  EXPECT_GT(drawn.size(), 60U) << "120 draws of 200 nodes";
}

TEST(WalkBatch, RowsHoldEachPlaceOfRealWalksOnceInOrder) {
  const std::vector<NodeId> seeds{7, 190, 42, 199};
  const WalkBatch batch = Make(kOptions, seeds, 5, 0);
  std::map<int64_t, std::vector<int64_t>> want;
  for (int64_t e = 0; e < std::ssize(batch.walks); ++e) {
    const int64_t walk = e / 6;
    const bool real = walk < 15 ? walk < 12 : walk < 15 + 24;
    if (real) want[batch.walks[static_cast<size_t>(e)]].push_back(e);
  }
  // The batch has room for as many rows as there are nodes.
  ASSERT_EQ(batch.rows.size(), 200U);
  ASSERT_EQ(batch.offsets.size(), 201U);
  std::map<int64_t, std::vector<int64_t>> got;
  for (size_t m = 0; m < batch.rows.size(); ++m) {
    const auto begin = batch.places.begin() + batch.offsets[m], end = batch.places.begin() + batch.offsets[m + 1];
    if (begin == end) {
      EXPECT_TRUE(want.contains(batch.rows[m])) << "padding repeats a row of the batch";
      continue;
    }
    EXPECT_TRUE(got.emplace(batch.rows[m], std::vector<int64_t>(begin, end)).second) << "a row stands once";
  }
  EXPECT_EQ(got, want);
}

TEST(WalkBatch, EqualArgumentsMakeEqualBatchesForAnyThreadsAndAfterOthers) {
  std::vector<NodeId> seeds(150);
  std::iota(seeds.begin(), seeds.end(), 20U);
  WalkBatchOptions biased = kOptions;
  biased.p = 0.25;
  biased.q = 4;
  biased.per_seed = 20;
  for (const WalkBatchOptions& options : {kOptions, biased}) {
    const WalkBatch one = Make(options, seeds, 150, 3), four = Make(options, seeds, 150, 3, 4);
    auto batcher = WalkBatcher::Create(Chain(200), options, 2);
    ASSERT_TRUE(batcher.ok());
    WalkBatch later;
    ASSERT_TRUE((*batcher)->Make(std::vector<NodeId>{3, 4}, 150, 2, later).ok());
    EXPECT_NE(later.walks, one.walks);
    ASSERT_TRUE((*batcher)->Make(seeds, 150, 3, later).ok());
    for (const WalkBatch* other : std::initializer_list<const WalkBatch*>{&four, &later}) {
      EXPECT_EQ(one.walks, other->walks);
      EXPECT_EQ(one.rows, other->rows);
      EXPECT_EQ(one.offsets, other->offsets);
      EXPECT_EQ(one.places, other->places);
    }
    EXPECT_NE(one.walks, Make(options, seeds, 150, 4).walks) << "another stream";
  }
}

TEST(WalkBatch, RefusesAGraphWithoutOutEdges) {
  const auto graph = Chain(5);
  graph->view().out = {};
  EXPECT_THAT(WalkBatcher::Create(graph, kOptions, 1).status().message(), testing::HasSubstr("keeps no out-edges"));
}

TEST(WalkBatch, TellsOfDamage) {
  const auto graph = Chain(5);
  graph->view().out.neighbors = graph->KeepDamaged(std::vector<NodeId>{1, 2, 2, 3, 3, 4, 4});
  auto batcher = WalkBatcher::Create(graph, kOptions, 1);
  ASSERT_TRUE(batcher.ok());
  WalkBatch batch;
  EXPECT_TRUE(absl::IsDataLoss((*batcher)->Make(std::vector<NodeId>{0, 1}, 2, 0, batch)));
}

}  // namespace
}  // namespace permafrost::data
