#include "base/monotonic.h"

#include <gtest/gtest.h>

#include <thread>

namespace permafrost {
namespace {

TEST(PatienceTest, IsTheThreadsAndTheShortestOfThoseAround) {
  EXPECT_EQ(Patience::Left(absl::Seconds(5)), absl::Seconds(5)) << "without one";
  EXPECT_TRUE(Patience::IsWanted());
  const Patience day(absl::Hours(24));
  {
    const Patience none(absl::ZeroDuration());
    EXPECT_EQ(Patience::Left(absl::Seconds(5)), absl::ZeroDuration());
    const Patience longer(absl::Hours(1));
    EXPECT_EQ(Patience::Left(absl::Seconds(5)), absl::ZeroDuration()) << "the one around it is over";
  }
  EXPECT_GT(Patience::Left(absl::InfiniteDuration()), absl::Hours(1));
  EXPECT_EQ(Patience::Left(absl::Seconds(5)), absl::Seconds(5)) << "not more than was asked for";
  std::thread([] { EXPECT_EQ(Patience::Left(absl::Seconds(5)), absl::Seconds(5)) << "another thread's"; }).join();
}

TEST(PatienceTest, WhatIsNotWantedAroundItIsNotWanted) {
  bool wanted = true;
  const Patience call(absl::Hours(1), [&wanted] { return wanted; });
  const Patience part(absl::Minutes(1));
  EXPECT_TRUE(Patience::IsWanted());
  wanted = false;
  EXPECT_FALSE(Patience::IsWanted());
}

}  // namespace
}  // namespace permafrost
