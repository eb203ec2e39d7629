#include "data/rows/frame_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/random.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kRows = 40;

class UseScheduleTest : public ::testing::Test {
 protected:
  uint64_t Announce(const std::vector<NodeId>& rows, const std::vector<NodeId>& more = {}) {
    told_.clear();
    return uses_.Announce(rows, more, [this](NodeId row) { told_.push_back(row); });
  }
  void Use(uint64_t number) {
    told_.clear();
    uses_.Use(number, [this](NodeId row) { told_.push_back(row); });
  }

  UseSchedule uses_{kRows};
  std::vector<NodeId> told_;
};

TEST_F(UseScheduleTest, ARowsNextUseIsTheFirstOfItsBatchesThatWait) {
  const uint64_t first = Announce({3, 5}, {5, 7, 3});
  EXPECT_EQ(told_, (std::vector<NodeId>{3, 5, 7})) << "each once";
  const uint64_t second = Announce({5, 9});
  EXPECT_EQ(told_, (std::vector<NodeId>{9})) << "5 was known to come";
  const uint64_t third = Announce({3, 5});
  EXPECT_EQ(uses_.NextUse(5), UseSchedule::SlotOf(first));
  EXPECT_EQ(uses_.NextUse(1), kNoUse);
  Use(first);
  EXPECT_EQ(told_, (std::vector<NodeId>{3, 5, 7}));
  EXPECT_EQ(uses_.NextUse(3), UseSchedule::SlotOf(third));
  EXPECT_EQ(uses_.NextUse(5), UseSchedule::SlotOf(second));
  EXPECT_EQ(uses_.NextUse(7), kNoUse);
  Use(first);
  EXPECT_TRUE(told_.empty()) << "a batch is used once";
  Use(second);
  EXPECT_EQ(uses_.NextUse(5), UseSchedule::SlotOf(third));
  Use(third);
  EXPECT_EQ(uses_.NextUse(5), kNoUse);
}

TEST_F(UseScheduleTest, ABatchThatNeverComesLeavesTheOthers) {
  const uint64_t first = Announce({1}), second = Announce({1, 2}), third = Announce({1});
  Use(second);
  EXPECT_EQ(uses_.NextUse(2), kNoUse);
  EXPECT_EQ(uses_.NextUse(1), UseSchedule::SlotOf(first));
  Use(first);
  // The batches after the one that was dropped are no longer known.
  EXPECT_EQ(uses_.NextUse(1), kNoUse);
  Use(third);
  EXPECT_EQ(uses_.NextUse(1), kNoUse);
}

TEST_F(UseScheduleTest, WhatIsTooFarAheadIsNotRecorded) {
  for (uint64_t batch = 1; batch <= kUseSlots; ++batch) EXPECT_EQ(Announce({4}), batch);
  EXPECT_EQ(Announce({4, 6}), 0u);
  EXPECT_EQ(uses_.NextUse(6), kNoUse);
  Use(0);
  EXPECT_TRUE(told_.empty());
  Use(1);
  EXPECT_EQ(Announce({6}), kUseSlots + 1);
}

TEST_F(UseScheduleTest, AgreesWithASearchThroughAllThatWait) {
  SplitMix64 random(11, 0);
  std::deque<std::pair<uint64_t, std::vector<NodeId>>> waiting;
  for (int call = 0; call < 5000; ++call) {
    if (waiting.size() < kUseSlots && random.Below(2) == 0) {
      std::vector<NodeId> rows(random.Below(8));
      for (NodeId& row : rows) row = static_cast<NodeId>(random.Below(kRows));
      waiting.emplace_back(Announce(rows), rows);
    } else if (!waiting.empty()) {
      Use(waiting.front().first);
      waiting.pop_front();
    }
    for (NodeId row = 0; row < kRows; ++row) {
      const auto next = std::ranges::find_if(
          waiting, [row](const auto& batch) { return std::ranges::find(batch.second, row) != batch.second.end(); });
      ASSERT_EQ(uses_.NextUse(row), next == waiting.end() ? kNoUse : UseSchedule::SlotOf(next->first)) << row;
    }
  }
}

}  // namespace
}  // namespace permafrost::data
