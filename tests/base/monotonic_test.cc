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

}  // namespace
}  // namespace permafrost
