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

// Resuming a job on another machine relies on these.
TEST(EpochOrder, GoldenOrder) {
  const EpochOrder epochs(Ids(10), {.batch_size = 4, .seed = 42});
  EXPECT_THAT(epochs.Of(0), ElementsAre(104, 106, 101, 102, 105, 107, 109, 108, 100, 103));
  EXPECT_THAT(epochs.Of(1), ElementsAre(106, 103, 101, 100, 102, 108, 109, 107, 105, 104));
}

TEST(EpochOrder, EveryGraphOnceAnEpochAndEpochsDiffer) {
  const EpochOrder epochs(Ids(1000), {.batch_size = 32, .seed = 1});
  const auto first = epochs.Of(0), second = epochs.Of(1);
  EXPECT_NE(first, second);
  for (auto order : {first, second}) {
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, Ids(1000));
  }
  EXPECT_EQ(epochs.Of(0), first);
  EXPECT_NE(EpochOrder(Ids(1000), {.batch_size = 32, .seed = 2}).Of(0), first);
  EXPECT_EQ(EpochOrder(Ids(1000), {.batch_size = 8, .seed = 1}).Of(0), first) << "the order is not the batches'";
}

TEST(EpochOrder, WithoutShuffleTheOrderIsTheSplits) {
  const EpochOrder epochs(Ids(5), {.batch_size = 2, .seed = 1, .shuffle = false});
  EXPECT_EQ(epochs.Of(3), Ids(5));
  ASSERT_EQ(epochs.batches_per_epoch(), 3);
  const auto order = epochs.Of(3);
  EXPECT_THAT(epochs.Batch(order, 0), ElementsAre(100, 101));
  EXPECT_THAT(epochs.Batch(order, 2), ElementsAre(104)) << "the last is partial";
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
      {"7 batches over 2 ranks leave one out", 7, 1, 2, 3},
      {"fewer batches than ranks", 2, 1, 4, 0},
  };
  for (const auto& c : kCases) {
    const EpochOrder epochs(Ids(c.graphs), {.batch_size = c.batch_size, .world_size = c.world_size});
    EXPECT_EQ(epochs.batches_per_epoch(), c.want) << c.why;
  }
}

TEST(EpochOrder, RanksShareAnEpochWithoutOverlap) {
  const EpochOrder alone(Ids(70), {.batch_size = 10, .seed = 5});
  const auto order = alone.Of(2);
  for (int64_t rank = 0; rank < 3; ++rank) {
    const EpochOrder epochs(Ids(70), {.batch_size = 10, .seed = 5, .rank = rank, .world_size = 3});
    ASSERT_EQ(epochs.batches_per_epoch(), 2);
    EXPECT_EQ(epochs.Of(2), order);
    for (int64_t batch = 0; batch < 2; ++batch) {
      const auto mine = epochs.Batch(order, batch), global = alone.Batch(order, batch * 3 + rank);
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), global.begin(), global.end()));
    }
  }
}

TEST(SplitMix64, BelowIsUniformAndInRange) {
  SplitMix64 random(3, 0);
  EXPECT_EQ(random.Below(1), 0u);
  std::array<int, 6> counts{};
  constexpr int kDraws = 60000;
  for (int i = 0; i < kDraws; ++i) ++counts.at(random.Below(6));
  // Six standard deviations of a fair die.
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 6, 6 * 92);
}

TEST(Shuffle, AllOrdersOfThreeAreEquallyLikely) {
  std::array<int, 27> counts{};
  for (uint64_t seed = 0; seed < 12000; ++seed) {
    std::array<int, 3> values = {0, 1, 2};
    SplitMix64 random(seed, 9);
    Shuffle(std::span<int>(values), random);
    ++counts.at(static_cast<size_t>(values[0] * 9 + values[1] * 3 + values[2]));
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
