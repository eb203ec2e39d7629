#include "data/sampling/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Ids(uint32_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 100u);
  return ids;
}

// A job that resumes on another machine relies on these orders.
TEST(EpochOrder, GoldenOrder) {
  const EpochOrder epochs(Ids(10), {.batch_size = 4, .seed = 42});
  EXPECT_THAT(epochs.Of(0).graphs, ElementsAre(104, 106, 101, 102, 105, 107, 109, 108, 100, 103));
  EXPECT_THAT(epochs.Of(1).graphs, ElementsAre(106, 103, 101, 100, 102, 108, 109, 107, 105, 104));
}

TEST(EpochOrder, EveryGraphOnceAnEpochAndEpochsDiffer) {
  const EpochOrder epochs(Ids(1000), {.batch_size = 32, .seed = 1});
  const auto first = epochs.Of(0).graphs, second = epochs.Of(1).graphs;
  EXPECT_NE(first, second);
  for (auto order : {first, second}) {
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, Ids(1000));
  }
  EXPECT_EQ(epochs.Of(0).graphs, first);
  EXPECT_NE(EpochOrder(Ids(1000), {.batch_size = 32, .seed = 2}).Of(0).graphs, first);
  EXPECT_EQ(EpochOrder(Ids(1000), {.batch_size = 8, .seed = 1}).Of(0).graphs, first) << "the order is not the batches'";
}

TEST(EpochOrder, WithoutShuffleTheOrderIsTheSplits) {
  const EpochOrder epochs(Ids(5), {.batch_size = 2, .seed = 1, .shuffle = false});
  EXPECT_EQ(epochs.Of(3).graphs, Ids(5));
  ASSERT_EQ(epochs.batches_per_epoch(), 3);
  const auto order = epochs.Of(3);
  EXPECT_THAT(epochs.Batch(order, 0), ElementsAre(100, 101));
  EXPECT_THAT(epochs.Batch(order, 2), ElementsAre(104)) << "the last is partial";
}

TEST(EpochOrder, WithoutShuffleABudgetCutsTheSplitsOrder) {
  const std::vector<GraphSize> sizes{{3, 4}, {3, 4}, {9, 4}, {1, 1}, {1, 6}, {1, 6}, {1, 1}, {1, 1}, {1, 1}};
  const EpochOrder epochs(Ids(9),
                          {.batch_size = 3,
                           .shuffle = false,
                           .batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 7, .max_edges = 8}},
                          sizes);
  const auto order = epochs.Of(0);
  EXPECT_EQ(order.graphs, Ids(9));
  ASSERT_EQ(epochs.batches_per_epoch(), 5);
  EXPECT_THAT(epochs.Batch(order, 0), ElementsAre(100, 101));
  EXPECT_THAT(epochs.Batch(order, 1), ElementsAre(102)) << "beyond the budget, so alone";
  EXPECT_THAT(epochs.Batch(order, 2), ElementsAre(103, 104)) << "another would pass the edges";
  EXPECT_THAT(epochs.Batch(order, 3), ElementsAre(105, 106, 107)) << "batch_size of them";
  EXPECT_THAT(epochs.Batch(order, 4), ElementsAre(108));
  EXPECT_EQ(EpochOrder({}, {.shuffle = false, .batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 7}}, {})
                .batches_per_epoch(),
            0);
}

TEST(EpochOrder, BatchCounts) {
  const struct {
    const char* why;
    uint32_t graphs;
    int64_t batch_size, world_size, want;
  } kCases[] = {
      {"no graphs", 0, 32, 1, 0},
      {"fewer than a batch", 3, 32, 1, 1},
      {"whole batches", 64, 32, 1, 2},
      {"one more", 65, 32, 1, 3},
      {"each of them has a share for every rank", 7, 1, 2, 7},
      {"which may be empty", 2, 1, 4, 2},
  };
  for (const auto& c : kCases) {
    const EpochOrder epochs(Ids(c.graphs), {.batch_size = c.batch_size, .world_size = c.world_size});
    EXPECT_EQ(epochs.batches_per_epoch(), c.want) << c.why;
  }
}

// Checks that the shares of all ranks together make up the batches of one rank alone. Returns how many graphs of
// `batch` each rank has.
std::vector<size_t> ExpectShared(const std::vector<GraphSize>& sizes, EpochOrderOptions options, int64_t ranks,
                                 int64_t batch) {
  const EpochOrder alone(Ids(70), options, sizes);
  const EpochBatches order = alone.Of(2);
  std::vector<size_t> shares;
  for (int64_t b = 0; b < alone.batches_per_epoch(); ++b) {
    std::vector<uint32_t> all;
    for (options.rank = 0; options.rank < ranks; ++options.rank) {
      options.world_size = ranks;
      const EpochOrder epochs(Ids(70), options, sizes);
      const EpochBatches own = epochs.Of(2);
      EXPECT_EQ(epochs.batches_per_epoch(), alone.batches_per_epoch());
      EXPECT_EQ(epochs.Size(own, b), std::ssize(alone.Batch(order, b)));
      const auto mine = epochs.Batch(own, b);
      all.insert(all.end(), mine.begin(), mine.end());
      const EpochOrder::WholeBatch whole = epochs.Whole(own, b);
      EXPECT_THAT(whole.graphs, testing::ElementsAreArray(alone.Batch(order, b))) << b;
      EXPECT_EQ(whole.places.size(), mine.size());
      for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(whole.graphs.at(whole.places[i]), mine[i]) << b;
      if (b == batch) shares.push_back(mine.size());
    }
    const auto whole = alone.Batch(order, b);
    EXPECT_THAT(all, testing::UnorderedElementsAreArray(whole.begin(), whole.end())) << b;
  }
  return shares;
}

TEST(EpochOrder, RanksShareEachBatch) {
  // There are eight batches of 9 graphs, except that the last has 7.
  EXPECT_THAT(ExpectShared({}, {.batch_size = 9, .seed = 5}, 3, 0), ElementsAre(3, 3, 3));
  EXPECT_THAT(ExpectShared({}, {.batch_size = 9, .seed = 5}, 3, 7), ElementsAre(3, 2, 2)) << "the last turn is onward";
  EXPECT_THAT(ExpectShared({}, {.batch_size = 67}, 2, 1), ElementsAre(1, 2)) << "it is back";
  EXPECT_THAT(ExpectShared({}, {.batch_size = 69}, 3, 1), ElementsAre(1, 0, 0));
}

// ---- Composed batches

std::vector<GraphSize> SizesOf(uint32_t count) {
  SplitMix64 random(7, 0);
  std::vector<GraphSize> sizes(count);
  for (GraphSize& size : sizes) {
    size.nodes = static_cast<int64_t>(5 + random.Below(30));
    size.edges = 2 * size.nodes + static_cast<int64_t>(random.Below(9));
  }
  return sizes;
}

GraphSize HeldBy(std::span<const uint32_t> batch, const std::vector<GraphSize>& sizes) {
  GraphSize held;
  for (const uint32_t id : batch) {
    held.nodes += sizes[id - 100].nodes;
    held.edges += sizes[id - 100].edges;
  }
  return held;
}

// A job that resumes on another machine relies on these orders.
TEST(ComposedBatches, GoldenOrder) {
  const EpochOrder balanced(Ids(8), {.batch_size = 3, .seed = 42, .batching = {.kind = spec::BatchingKind::kBalanced}},
                            SizesOf(8));
  const EpochBatches epoch = balanced.Of(1);
  EXPECT_THAT(epoch.graphs, ElementsAre(104, 105, 101, 100, 103, 102, 106, 107));
  EXPECT_THAT(epoch.ends, ElementsAre(2, 5, 8));
}

TEST(ComposedBatches, EveryGraphOnceAnEpochWithinTheLimitsInEqualNumbersOfBatches) {
  const struct {
    const char* why;
    uint32_t graphs;
    int64_t batch_size;
    spec::BatchingOptions batching;
    int64_t least, most;  // number of batches per epoch
  } kCases[] = {
      {"balanced", 1000, 32, {.kind = spec::BatchingKind::kBalanced}, 32, 32},
      {"balanced, whole batches", 960, 32, {.kind = spec::BatchingKind::kBalanced}, 30, 30},
      {"balanced, fewer than a batch", 7, 32, {.kind = spec::BatchingKind::kBalanced}, 1, 1},
      {"balanced, one graph a batch", 7, 1, {.kind = spec::BatchingKind::kBalanced}, 7, 7},
      {"no graphs", 0, 32, {.kind = spec::BatchingKind::kBalanced}, 0, 0},
      {"a budget of nodes", 1000, 1000, {.kind = spec::BatchingKind::kBudget, .max_nodes = 400}, 48, 52},
      {"a budget of edges", 1000, 1000, {.kind = spec::BatchingKind::kBudget, .max_edges = 900}, 47, 52},
      {"both", 1000, 1000, {.kind = spec::BatchingKind::kBudget, .max_nodes = 400, .max_edges = 900}, 48, 53},
      {"a budget that the graphs bound", 1000, 10, {.kind = spec::BatchingKind::kBudget, .max_nodes = 40000}, 100, 100},
      {"a budget of the largest graph", 50, 32, {.kind = spec::BatchingKind::kBudget, .max_nodes = 34}, 30, 50},
  };
  for (const auto& c : kCases) {
    const std::vector<GraphSize> sizes = SizesOf(c.graphs);
    const EpochOrder epochs(Ids(c.graphs), {.batch_size = c.batch_size, .seed = 1, .batching = c.batching}, sizes);
    EXPECT_GE(epochs.batches_per_epoch(), c.least) << c.why;
    EXPECT_LE(epochs.batches_per_epoch(), c.most) << c.why;
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      const EpochBatches order = epochs.Of(epoch);
      ASSERT_EQ(std::ssize(order.ends), epochs.batches_per_epoch()) << c.why;
      std::vector<uint32_t> graphs = order.graphs;
      std::ranges::sort(graphs);
      EXPECT_EQ(graphs, Ids(c.graphs)) << c.why;
      for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
        const auto batch = epochs.Batch(order, b);
        const GraphSize held = HeldBy(batch, sizes);
        EXPECT_FALSE(batch.empty()) << c.why;
        EXPECT_LE(std::ssize(batch), c.batch_size) << c.why;
        EXPECT_LE(held.nodes, epochs.limits().nodes) << c.why;
        EXPECT_LE(held.edges, epochs.limits().edges) << c.why;
        const bool within = (c.batching.max_nodes == 0 || held.nodes <= c.batching.max_nodes) &&
                            (c.batching.max_edges == 0 || held.edges <= c.batching.max_edges);
        EXPECT_TRUE(within) << c.why << ": " << held.nodes << " nodes, " << held.edges << " edges";
      }
    }
  }
}

TEST(ComposedBatches, ArePureFunctionsOfSeedAndEpochAndDifferFromEpochToEpoch) {
  const std::vector<GraphSize> sizes = SizesOf(200);
  const auto make = [&](uint64_t seed) {
    return EpochOrder(Ids(200), {.batch_size = 16, .seed = seed, .batching = {.kind = spec::BatchingKind::kBalanced}},
                      sizes);
  };
  const EpochOrder epochs = make(3);
  EXPECT_EQ(epochs.Of(4).graphs, make(3).Of(4).graphs);
  EXPECT_EQ(epochs.Of(4).ends, make(3).Of(4).ends);
  EXPECT_NE(epochs.Of(4).graphs, epochs.Of(5).graphs);
  EXPECT_NE(epochs.Of(4).graphs, make(4).Of(4).graphs);
  // Most graphs that share a batch with the first graph are others in the next epoch.
  const auto mates = [&](int64_t epoch) {
    const EpochBatches order = epochs.Of(epoch);
    for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
      const auto batch = epochs.Batch(order, b);
      if (std::ranges::find(batch, 100U) != batch.end()) return std::vector<uint32_t>(batch.begin(), batch.end());
    }
    return std::vector<uint32_t>();
  };
  int64_t same = 0;
  for (const uint32_t mate : mates(0)) same += std::ranges::count(mates(1), mate);
  EXPECT_LE(same, 8);
}

TEST(ComposedBatches, BalancedOnesAreOfNearlyEqualSize) {
  const std::vector<GraphSize> sizes = SizesOf(1000);
  for (const bool balanced : {false, true}) {
    const EpochOrder epochs(
        Ids(1000),
        {.batch_size = 32,
         .seed = 1,
         .batching = {.kind = balanced ? spec::BatchingKind::kBalanced : spec::BatchingKind::kRandom}},
        sizes);
    int64_t most = 0, all = 0;
    const EpochBatches order = epochs.Of(0);
    for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
      const GraphSize held = HeldBy(epochs.Batch(order, b), sizes);
      most = std::max(most, held.nodes + held.edges);
      all += held.nodes + held.edges;
    }
    // The share of rows that padding each batch to the largest would add.
    const double added = static_cast<double>(most * epochs.batches_per_epoch() - all) / static_cast<double>(all);
    if (balanced) {
      EXPECT_LE(added, 0.02);
    } else {
      EXPECT_GE(added, 0.1);
    }
  }
}

TEST(ComposedBatches, RanksShareThemEvenly) {
  const std::vector<GraphSize> sizes = SizesOf(70);
  EpochOrderOptions options{.batch_size = 12, .seed = 5, .batching = {.kind = spec::BatchingKind::kBalanced}};
  ExpectShared(sizes, options, 3, 0);
  // A dealt batch begins with its larger graphs, and the ranks share them.
  options.world_size = 2;
  std::array<int64_t, 2> nodes{};
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    const EpochOrder epochs(Ids(70), options, sizes);
    const EpochBatches order = epochs.Of(0);
    for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
      for (const uint32_t graph : epochs.Batch(order, b)) nodes.at(options.rank) += sizes[graph - 100].nodes;
    }
  }
  EXPECT_NEAR(static_cast<double>(nodes[0]) / static_cast<double>(nodes[1]), 1, 0.1);
}

TEST(SplitMix64, BelowIsUniformAndInRange) {
  SplitMix64 random(3, 0);
  EXPECT_EQ(random.Below(1), 0u);
  std::array<int, 6> counts{};
  constexpr int kDraws = 60000;
  for (int i = 0; i < kDraws; ++i) ++counts.at(random.Below(6));
  // Six standard deviations of a fair die are allowed.
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 6.0, 6 * 92);
}

TEST(Shuffle, AllOrdersOfThreeAreEquallyLikely) {
  std::array<int, 27> counts{};
  for (uint64_t seed = 0; seed < 12000; ++seed) {
    std::array<size_t, 3> values = {0, 1, 2};
    SplitMix64 random(seed, 9);
    Shuffle(std::span<size_t>(values), random);
    ++counts.at(values[0] * 9 + values[1] * 3 + values[2]);
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, 2000, 6 * 41);
  }
  EXPECT_EQ(orders, 6);
}

}  // namespace
}  // namespace permafrost::data
