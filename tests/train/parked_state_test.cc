// Tests tensors that are parked in a file, and are zero in memory meanwhile.
#include "train/loop/state_aside.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/status.h"
#include "temp_dir.h"

namespace permafrost::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(ParkedStateTest, LargeTensorsAreZeroUntilTheyAreRestoredToTheBit) {
  const TempDir dir;
  const at::Tensor large = at::randn({300, 300}), halves = at::randn({400, 400}).to(at::kBFloat16),
                   small = at::ones({3}), zero = at::zeros({300, 300});
  const at::Tensor was = large.clone(), were = halves.clone();
  auto parked = ParkedState::Park(dir.path(), {}, {{"m", large}, {"s", small}, {"z", zero}, {"h", halves}});
  ASSERT_TRUE(parked.ok()) << parked.status();
  ASSERT_TRUE(parked->has_value());
  EXPECT_EQ(large.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(halves.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(small.sum().item<float>(), 3);
  EXPECT_THAT(*ListDirectory(dir.path()), Optional(IsEmpty())) << "it has no name";
  at::Tensor(large).fill_(7);
  ASSERT_TRUE((*parked)->Restore().ok());
  EXPECT_TRUE(at::equal(large, was));
  EXPECT_TRUE(at::equal(halves, were));
}

TEST(ParkedStateTest, NothingIsParkedThatIsSmallOrZero) {
  const TempDir dir;
  const auto parked = ParkedState::Park(dir.path(), {}, {{"s", at::ones({3})}, {"z", at::zeros({300, 300})}});
  ASSERT_TRUE(parked.ok());
  EXPECT_FALSE(parked->has_value());
}

TEST(ParkedStateTest, WhatHasNoPlaceStaysInMemory) {
  const TempDir dir;
  const at::Tensor large = at::ones({300, 300});
  const auto gone = ParkedState::Park(dir.path() / "none", {}, {{"m", large}});
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("none"));
  const DiskReserve all(dir.path(), uint64_t{1} << 62);
  EXPECT_EQ(GetReason(ParkedState::Park(dir.path(), all, {{"m", large}}).status()).reason, "DISK_NEARLY_FULL");
  EXPECT_EQ(large.sum().item<float>(), 90'000);
}

}  // namespace
}  // namespace permafrost::train
