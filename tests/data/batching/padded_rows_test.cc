#include "data/batching/row_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

TEST(PaddedRows, RowsKeepTheirPlaceInTheirSegment) {
  SegmentBounds from, to;
  SetBounds(std::vector<int64_t>{2, 0, 3}, from);
  SetBounds(std::vector<int64_t>{4, 1, 3}, to);
  EXPECT_THAT(to, ElementsAre(0, 4, 5, 8));
  EXPECT_EQ(MoveRow(0, from, to), 0);
  EXPECT_EQ(MoveRow(1, from, to), 1);
  EXPECT_EQ(MoveRow(2, from, to), 5) << "the first of the last segment: the middle one is empty";
  EXPECT_EQ(MoveRow(4, from, to), 7);
}

TEST(PaddedRows, OffsetsOfPaddingRowsAreEmpty) {
  SegmentBounds bounds;
  SetBounds(std::vector<int64_t>{3, 2, 2}, bounds);
  AlignedVector<int64_t> offsets = {0, 4, -1, -1, -1, 9, -1};  // there are 2, 0 and 1 real rows
  FillOffsetPadding(offsets, bounds, std::vector<int64_t>{2, 0, 1}, 12);
  EXPECT_THAT(offsets, ElementsAre(0, 4, 9, 9, 9, 9, 12, 12));
}

// The segments move up, down, or both ways at once.
TEST(PaddedRows, MovingIsTheSameAsLayingOutAnew) {
  SplitMix64 random(9, 9);
  for (int round = 0; round < 2000; ++round) {
    const size_t segments = 1 + random.Below(5);
    std::vector<int64_t> real, before, after;
    for (size_t s = 0; s < segments; ++s) {
      real.push_back(static_cast<int64_t>(random.Below(5)));
      before.push_back(real.back() + static_cast<int64_t>(random.Below(6)));
      after.push_back(real.back() + static_cast<int64_t>(random.Below(6)));
    }
    SegmentBounds from, to;
    SetBounds(before, from);
    SetBounds(after, to);
    const auto lay_out = [&](const SegmentBounds& bounds) {
      AlignedVector<int> values(static_cast<size_t>(bounds.back() * 2), -1);
      AlignedVector<int64_t> offsets(static_cast<size_t>(bounds.back()), -1);
      int next = 0;
      int64_t offset = 0;
      for (size_t s = 0; s < segments; ++s) {
        for (int64_t r = bounds[s]; r < bounds[s] + real[s]; ++r) {
          values[static_cast<size_t>(2 * r)] = next++;
          values[static_cast<size_t>(2 * r + 1)] = next++;
          offsets[static_cast<size_t>(r)] = std::exchange(offset, offset + next % 4);
        }
      }
      FillPadding(values, bounds, real, 2, 0);
      FillOffsetPadding(offsets, bounds, real, offset);
      return std::pair(values, offsets);
    };
    auto [values, offsets] = lay_out(from);
    const auto [want_values, want_offsets] = lay_out(to);
    MoveRows(values, from, to, real, 2);
    FillPadding(values, to, real, 2, 0);
    MoveOffsets(offsets, from, to, real);
    ASSERT_EQ(values, want_values);
    ASSERT_EQ(offsets, want_offsets);
    ASSERT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  }
}

}  // namespace
}  // namespace permafrost::data
