#include "data/sampling/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"

namespace permafrost::data {
namespace {

using testing::ElementsAre;
using testing::Optional;

std::vector<uint32_t> Iota(size_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

std::vector<GraphSize> RandomSizes(SplitMix64& random, size_t count) {
  std::vector<GraphSize> sizes(count);
  for (GraphSize& size : sizes) {
    size.nodes = static_cast<int64_t>(5 + random.Below(30));
    size.edges = size.nodes + static_cast<int64_t>(random.Below(40));
  }
  return sizes;
}

std::vector<GraphSize> Held(const std::vector<GraphSize>& sizes, const std::vector<uint32_t>& order,
                            const std::vector<uint32_t>& batch_of, size_t batches) {
  std::vector<GraphSize> held(batches);
  for (size_t i = 0; i < order.size(); ++i) {
    held[batch_of[i]].nodes += sizes[order[i]].nodes;
    held[batch_of[i]].edges += sizes[order[i]].edges;
  }
  return held;
}

TEST(Deal, EachGoesToTheBatchWithTheLeast) {
  const std::vector<GraphSize> sizes = {{8, 8}, {7, 7}, {5, 5}, {4, 4}, {3, 3}};
  const struct {
    const char* why;
    std::vector<GraphSize> sizes;
    int64_t batches;
    DealLimits limits;
    std::optional<std::vector<uint32_t>> want;
  } kCases[] = {
      {"two batches", sizes, 2, {}, {{0, 1, 1, 0, 0}}},
      {"one", sizes, 1, {}, {{0, 0, 0, 0, 0}}},
      {"a batch for each", sizes, 5, {}, {{0, 1, 2, 3, 4}}},
      {"no more than three graphs a batch", sizes, 2, {.graphs = 3}, {{0, 1, 1, 0, 0}}},
      {"a full batch is passed over", {{9, 9}, {1, 1}, {1, 1}, {1, 1}}, 2, {.graphs = 2}, {{0, 1, 1, 0}}},
      {"too few places", sizes, 2, {.graphs = 2}, std::nullopt},
      {"within the nodes", sizes, 2, {.nodes = 15}, {{0, 1, 1, 0, 0}}},
      {"not within the nodes", sizes, 2, {.nodes = 14}, std::nullopt},
      {"not within the edges", sizes, 2, {.edges = 14}, std::nullopt},
      {"nodes or edges, of which it has the larger part", {{4, 1}, {3, 9}, {2, 2}}, 2, {}, {{0, 1, 0}}},
      {"graphs of nothing fill no batch twice", {{0, 0}, {0, 0}, {0, 0}}, 3, {}, {{0, 1, 2}}},
      {"no graphs", {}, 1, {}, {{}}},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Deal(c.sizes, Iota(c.sizes.size()), c.batches, c.limits), c.want) << c.why;
  }
}

TEST(Deal, OrdersBySizeKeepingTheOrderOfEqualOnes) {
  const std::vector<GraphSize> sizes = {{10, 10}, {50, 51}, {50, 50}, {1, 0}, {51, 50}, {10, 10}};
  std::vector<uint32_t> order = {5, 4, 3, 2, 1, 0};
  LargerFirst(sizes, order);
  EXPECT_THAT(order, ElementsAre(4, 2, 1, 5, 0, 3)) << "100 and 101 rows are of one class";
  order = {5, 4, 3, 2, 1, 0};
  LargestFirst(sizes, order);
  EXPECT_THAT(order, ElementsAre(4, 1, 2, 5, 0, 3)) << "of 101 rows, the more nodes first";
}

TEST(Deal, BatchesAreNearlyEqualAndNoneIsEmpty) {
  SplitMix64 random(1, 0);
  for (int round = 0; round < 30; ++round) {
    const std::vector<GraphSize> sizes = RandomSizes(random, 1 + random.Below(700));
    const size_t batches = 1 + random.Below(sizes.size());
    std::vector<uint32_t> order = Iota(sizes.size());
    Shuffle(std::span(order), random);
    LargerFirst(sizes, order);
    const auto batch_of = Deal(sizes, order, static_cast<int64_t>(batches), {});
    ASSERT_TRUE(batch_of);
    EXPECT_EQ(std::set<uint32_t>(batch_of->begin(), batch_of->end()).size(), batches) << "none is empty";
    const std::vector<GraphSize> held = Held(sizes, order, *batch_of, batches);
    int64_t most = 0, all = 0, largest = 0;
    for (const GraphSize& h : held) {
      most = std::max(most, h.nodes);
      all += h.nodes;
    }
    for (const GraphSize& s : sizes) largest = std::max({largest, s.nodes, s.edges});
    EXPECT_LE(most, all / static_cast<int64_t>(batches) + 2 * largest) << round;
  }
}

TEST(Deal, OfTheLargestFirstTheSizesAreTheSameForEveryOrder) {
  SplitMix64 random(2, 0);
  const std::vector<GraphSize> sizes = RandomSizes(random, 500);
  const auto dealt = [&](std::vector<uint32_t> order) {
    LargestFirst(sizes, order);
    std::vector<std::pair<int64_t, int64_t>> held;
    for (const GraphSize& h : Held(sizes, order, *Deal(sizes, order, 16, {}), 16)) held.emplace_back(h.nodes, h.edges);
    return held;
  };
  const auto first = dealt(Iota(500));
  for (int round = 0; round < 5; ++round) {
    std::vector<uint32_t> order = Iota(500);
    Shuffle(std::span(order), random);
    EXPECT_EQ(dealt(order), first);
  }
}

TEST(LeastBatches, IsEnoughAndOneLessIsNot) {
  SplitMix64 random(3, 0);
  for (int round = 0; round < 30; ++round) {
    const std::vector<GraphSize> sizes = RandomSizes(random, 1 + random.Below(400));
    const DealLimits limits{.graphs = 32,
                            .nodes = static_cast<int64_t>(35 + random.Below(900)),
                            .edges = static_cast<int64_t>(75 + random.Below(1500))};
    const int64_t least = LeastBatches(sizes, limits);
    std::vector<uint32_t> order = Iota(sizes.size());
    LargestFirst(sizes, order);
    EXPECT_TRUE(Deal(sizes, order, least, limits)) << round;
    EXPECT_TRUE(least == 1 || !Deal(sizes, order, least - 1, limits)) << round;
  }
}

TEST(LeastBatches, Edges) {
  EXPECT_EQ(LeastBatches({}, {.graphs = 4, .nodes = 9}), 0);
  const std::vector<GraphSize> one = {{9, 9}}, five(5, GraphSize{9, 9});
  EXPECT_EQ(LeastBatches(one, {.graphs = 4, .nodes = 9}), 1);
  EXPECT_EQ(LeastBatches(five, {.graphs = 4, .nodes = 9}), 5) << "each alone";
  EXPECT_EQ(LeastBatches(five, {.graphs = 4, .nodes = 1000}), 2) << "the graphs bound it";
  EXPECT_EQ(LeastBatches(five, {.graphs = 4, .edges = 18}), 3);
}

TEST(TightLimits, AreKeptByTheLargestFirstAndWithinTheOthers) {
  SplitMix64 random(4, 0);
  const std::vector<GraphSize> sizes = RandomSizes(random, 300);
  std::vector<uint32_t> order = Iota(300);
  LargestFirst(sizes, order);
  const DealLimits loose{.graphs = 32, .nodes = 700};
  const DealLimits tight = TightLimits(sizes, 12, loose);
  EXPECT_TRUE(Deal(sizes, order, 12, tight));
  EXPECT_EQ(tight.graphs, 32);
  EXPECT_LE(tight.nodes, 700);
  const int64_t edges = std::accumulate(sizes.begin(), sizes.end(), int64_t{0},
                                        [](int64_t sum, const GraphSize& s) { return sum + s.edges; });
  EXPECT_LE(tight.edges, edges / 12 * 104 / 100) << "a few percent above the mean batch";
}

}  // namespace
}  // namespace permafrost::data
