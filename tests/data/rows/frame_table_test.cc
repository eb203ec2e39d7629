#include "data/rows/frame_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace permafrost::data {
namespace {

using Pinned = FrameTable::Pinned;

class FrameTableTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRows = 100, kRowBytes = 5000;

  void Take(uint32_t row, uint64_t mark = 1) {
    std::byte* const frame = table_->Take(row, mark);
    ASSERT_NE(frame, nullptr);
    std::memset(frame, static_cast<int>(row), kRowBytes);
  }
  // Returns whether the row is in memory, and checks that it holds the bytes that Take wrote.
  bool Has(uint32_t row) {
    if (table_->Pin(row, ++mark_) == Pinned::kMissing) return false;
    const std::byte* const bytes = table_->Find(row);
    EXPECT_EQ(bytes[0], std::byte(row));
    EXPECT_EQ(bytes[kRowBytes - 1], std::byte(row));
    table_->Unpin(row);
    return true;
  }

  std::unique_ptr<FrameTable> table_ = *FrameTable::Create(kRows, kRowBytes);
  uint64_t mark_ = 1000;
};

TEST_F(FrameTableTest, APinIsTakenOnceForEachMark) {
  table_->SetFrames(1);
  EXPECT_EQ(table_->Pin(7, 1), Pinned::kMissing);
  Take(7, 1);
  EXPECT_EQ(table_->Pin(7, 1), Pinned::kAgain);
  EXPECT_EQ(table_->Pin(7, 2), Pinned::kPinned);
  EXPECT_EQ(table_->available(), 0u);
  table_->Unpin(7);
  EXPECT_EQ(table_->Take(8, 3), nullptr) << "one pin is left";
  table_->Unpin(7);
  EXPECT_EQ(table_->available(), 1u);
  Take(8, 3);
  EXPECT_FALSE(Has(7));
  EXPECT_EQ(table_->evictions(), 1u);
}

TEST_F(FrameTableTest, TheLeastWantedRowGoesFirstAndOfEqualOnesTheOldest) {
  table_->SetFrames(4);
  std::vector<uint8_t> levels(kRows);
  levels[1] = 200;
  levels[2] = levels[3] = 5;
  levels[4] = 70;
  table_->SetLevels(levels);
  for (const uint32_t row : {1, 2, 3, 4}) Take(row);
  for (const uint32_t row : {3, 1, 2, 4}) table_->Unpin(row);
  // Rows 50 to 53 stay pinned, so each of them takes the frame of one of rows 1 to 4.
  std::vector<uint32_t> gone;
  for (uint32_t row = 50; row < 54; ++row) {
    Take(row);
    for (const uint32_t before : {1, 2, 3, 4}) {
      if (!Has(before) && std::ranges::find(gone, before) == gone.end()) gone.push_back(before);
    }
  }
  EXPECT_EQ(gone, (std::vector<uint32_t>{3, 2, 4, 1}));
}

TEST_F(FrameTableTest, LevelsOfRowsInMemoryMayChange) {
  table_->SetFrames(3);
  for (const uint32_t row : {1, 2, 3}) {
    Take(row);
    table_->Unpin(row);
  }
  std::vector<uint8_t> levels(kRows, 9);
  levels[2] = 1;
  table_->SetLevels(levels);
  Take(60);
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(1) && Has(3));
}

TEST_F(FrameTableTest, RowsThatBatchesUseOutliveTheOthersAndTheLastUsedGoesFirst) {
  table_->SetFrames(4);
  std::vector<uint8_t> levels(kRows, 0);
  levels[3] = 255;
  table_->SetLevels(levels);
  for (const uint32_t row : {0u, 1u, 2u, 3u}) {
    Take(row);
    table_->Unpin(row);
  }
  // Slots are reused: kUseSlots was announced before slot 1, and slot 2 is the latest.
  table_->SetNextUse(0, 2);
  table_->SetNextUse(1, kUseSlots);
  table_->SetNextUse(2, 1);
  table_->SetNextUse(50, 1);  // row 50 has no frame
  table_->SetNewest(3);
  Take(10, 2);
  EXPECT_FALSE(Has(3)) << "of a high level, but no batch uses it";
  Take(11, 2);
  EXPECT_FALSE(Has(0)) << "the last of the three to be used";
  table_->SetNextUse(2, kNoUse);
  Take(12, 2);
  EXPECT_FALSE(Has(2)) << "no batch uses it any more";
  Take(13, 2);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(table_->Take(14, 2), nullptr);
}

TEST_F(FrameTableTest, FewerFramesDropWhatIsBeyondThemAndPinnedRowsWhenTheirPinsGo) {
  table_->SetFrames(10);
  for (uint32_t row = 0; row < 10; ++row) Take(row);
  for (uint32_t row = 0; row < 9; ++row) table_->Unpin(row);
  table_->SetFrames(4);
  EXPECT_EQ(table_->used(), 5u) << "four, and one that is pinned";
  EXPECT_TRUE(Has(9));
  table_->Unpin(9);
  EXPECT_FALSE(Has(9));
  EXPECT_EQ(table_->used(), 4u);
  table_->SetFrames(8);
  for (uint32_t row = 20; row < 24; ++row) Take(row);
  EXPECT_EQ(table_->used(), 8u) << "room again";
  for (uint32_t row = 0; row < 4; ++row) EXPECT_TRUE(Has(row)) << row;
}

#ifdef __linux__
// A part of a huge page that is given back stays charged while another part is in use.
TEST_F(FrameTableTest, FramesAreOfNoHugePages) {
  constexpr uint32_t kFrames = 4096;
  table_ = *FrameTable::Create(kFrames, kRowBytes);
  table_->SetFrames(kFrames);
  const std::byte* middle = nullptr;
  for (uint32_t row = 0; row < kFrames; ++row) {
    Take(row);
    if (row == kFrames / 2) middle = table_->Find(row);
  }
  // The first line of a mapping begins with its addresses. The lines after it describe the mapping.
  std::ifstream smaps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(middle);
  bool of_table = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) of_table = begin <= at && at < end;
    if (!of_table || !line.starts_with("AnonHugePages:")) continue;
    EXPECT_EQ(std::stoull(line.substr(line.find(':') + 1)), 0U) << line;
    return;
  }
  GTEST_SKIP() << "/proc/self/smaps does not tell of huge pages here";
}
#endif

TEST_F(FrameTableTest, ASpoiltRowIsForgottenWithItsLastPin) {
  table_->SetFrames(2);
  Take(5);
  table_->Spoil(5);
  EXPECT_TRUE(table_->spoilt(5));
  table_->Unpin(5);
  EXPECT_FALSE(Has(5));
  EXPECT_EQ(table_->used(), 0u);
  EXPECT_EQ(table_->evictions(), 0u);
  Take(5, 2);
  EXPECT_FALSE(table_->spoilt(5));
}

TEST_F(FrameTableTest, KeepsItsCountsOverAnyMixOfCalls) {
  SplitMix64 random(11, 0);
  std::multiset<uint32_t> pins;
  uint64_t mark = 0;
  uint64_t frames = 20;
  table_->SetFrames(frames);
  for (int step = 0; step < 20'000; ++step) {
    const auto row = static_cast<uint32_t>(random.Below(kRows));
    switch (random.Below(8)) {
      case 0:
      case 1:
      case 2: {
        const Pinned pinned = table_->Pin(row, ++mark);
        if (pinned == Pinned::kPinned) {
          ASSERT_EQ(table_->Find(row)[17], std::byte(row));
          pins.insert(row);
        } else if (std::byte* const to = table_->Take(row, mark)) {
          std::memset(to, static_cast<int>(row), kRowBytes);
          pins.insert(row);
        } else {
          ASSERT_GE(std::set(pins.begin(), pins.end()).size(), frames);
        }
        break;
      }
      case 7:
        if (random.Below(50) == 0) table_->SetFrames(frames = 1 + random.Below(40));
        if (random.Below(50) == 1) {
          std::vector<uint8_t> levels(kRows);
          for (uint8_t& level : levels) level = static_cast<uint8_t>(random.Next());
          table_->SetLevels(levels);
        }
        break;
      default:
        if (pins.empty()) break;
        table_->Unpin(*pins.begin());
        pins.erase(pins.begin());
    }
    const uint64_t pinned = std::set(pins.begin(), pins.end()).size();
    ASSERT_EQ(table_->available(), frames > pinned ? frames - pinned : 0);
    ASSERT_LE(table_->used(), std::max(frames, pinned + frames));
    for (const uint32_t held : pins) ASSERT_EQ(table_->Find(held)[4999], std::byte(held));
  }
}

}  // namespace
}  // namespace permafrost::data
