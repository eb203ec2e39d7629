#include "data/batching/pair_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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
    return targets;  // of the last link
  };
  EXPECT_EQ(negatives({3, 4, 5}, 0), negatives({5}, 0));
  EXPECT_NE(negatives({5}, 0), negatives({5}, 1));
  EXPECT_NE(negatives({5}, 0), negatives({4}, 0));
}

}  // namespace
}  // namespace permafrost::data
