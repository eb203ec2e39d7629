#include "base/monotonic.h"

#include <gtest/gtest.h>

#include <thread>

namespace permafrost {
namespace {

TEST(Event, IsSeenByWhoeverWaitsAndUntilItIsReset) {
  Event event;
  EXPECT_FALSE(event.is_set());
  EXPECT_FALSE(event.WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(event.WaitFor(absl::Seconds(-5))) << "a time that is over is no wait";
  std::thread setter([&] { event.Set(); });
  event.Wait();
  EXPECT_TRUE(event.WaitFor(absl::InfiniteDuration()));
  setter.join();
  event.Reset();
  EXPECT_FALSE(event.is_set());
  EXPECT_FALSE(event.WaitFor(absl::Milliseconds(1)));
}

TEST(Event, ALongWaitEndsWhenItIsSet) {
  for (const absl::Duration longest : {absl::InfiniteDuration(), absl::Hours(1'000'000'000)}) {
    Event event;
    std::thread setter([&] { event.Set(); });
    EXPECT_TRUE(event.WaitFor(longest));
    setter.join();
  }
}

TEST(Stopwatch, CountsFromItsStart) {
  Stopwatch watch;
  const Event never;
  EXPECT_FALSE(never.WaitFor(absl::Milliseconds(20)));
  EXPECT_GE(watch.Elapsed(), absl::Milliseconds(20));
  const absl::Duration before = watch.Elapsed();
  watch.Restart();
  EXPECT_GE(before, absl::ZeroDuration());
  EXPECT_GE(watch.Elapsed(), absl::ZeroDuration());
}

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

TEST(RetryDelay, DoublesToItsBound) {
  const struct {
    const char* why;
    int tries;
    absl::Duration want;
  } kCases[] = {
      {"nothing failed", 0, absl::ZeroDuration()},
      {"the first", 1, absl::Seconds(1)},
      {"twice as long", 2, absl::Seconds(2)},
      {"and again", 9, absl::Seconds(256)},
      {"the bound", 10, kLongestRetry},
      {"no overflow", 1'000'000, kLongestRetry},
  };
  for (const auto& c : kCases) EXPECT_EQ(RetryDelay(absl::Seconds(1), c.tries), c.want) << c.why;
}

}  // namespace
}  // namespace permafrost
