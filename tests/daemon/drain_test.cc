#include "daemon/drain.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"

namespace permafrost {
namespace {

// Does with signals what a daemon does, as the exit code of a process of its own.
[[noreturn]] void WaitForDrain(int signals_sent) {
  BlockSignals();
  DrainSignal drain;
  const SignalWaiter waiter(drain);
  for (int i = 0; i < signals_sent; ++i) {
    kill(getpid(), SIGTERM);
    const bool named = drain.Wait() == "SIGTERM";
    if (!named) _exit(1);
  }
  // A second signal ends the process here, whatever main waits for.
  while (signals_sent > 1) pause();
  _exit(0);
}

TEST(DrainSignal, KeepsTheFirstReason) {
  DrainSignal drain;
  drain.Request("first");
  drain.Request("second");
  EXPECT_EQ(drain.Wait(), "first");
}

TEST(SignalWaiterDeathTest, FirstSignalDrainsSecondEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(WaitForDrain(1), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(WaitForDrain(2), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(SignalWaiterDeathTest, EndsWithoutASignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_nothing = [] {
    BlockSignals();
    DrainSignal drain;
    { const SignalWaiter waiter(drain); }
    _exit(0);
  };
  EXPECT_EXIT(wait_for_nothing(), ::testing::ExitedWithCode(0), "");
}

TEST(DrainSignal, ReloadsUntilItDrains) {
  DrainSignal drain;
  int reloads = 0;
  drain.RequestReload();
  const std::string reason = drain.Wait([&] {
    if (++reloads == 3) return drain.Request("enough");
    drain.RequestReload();
  });
  EXPECT_EQ(reason, "enough");
  EXPECT_EQ(reloads, 3);
}

TEST(DrainSignal, WhatIsHookedHappensAtTheRequestThoughAReloadHangs) {
  DrainSignal drain;
  std::atomic<int> calls = 0;
  const auto hook = drain.OnRequest([&] { ++calls; });
  EXPECT_FALSE(drain.requested());
  absl::Notification reloads, may_end;
  std::string reason;
  drain.RequestReload();
  std::thread waiter([&] {
    reason = drain.Wait([&] {
      reloads.Notify();
      may_end.WaitForNotification();
    });
  });
  reloads.WaitForNotification();
  EXPECT_EQ(calls, 0);
  drain.Request("first");
  EXPECT_EQ(calls, 1) << "it waits for the reload";
  EXPECT_TRUE(drain.requested());
  drain.Request("second");
  may_end.Notify();
  waiter.join();
  EXPECT_EQ(calls, 1) << "once";
  EXPECT_EQ(reason, "first");
}

TEST(DrainSignal, WhatIsHookedAfterTheRequestHappensAtOnce) {
  DrainSignal drain;
  drain.Request("first");
  int calls = 0;
  const auto hook = drain.OnRequest([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(DrainSignal, AHookThatIsDroppedIsNotCalled) {
  DrainSignal drain;
  int calls = 0;
  drain.OnRequest([&] { ++calls; }).reset();
  drain.Request("first");
  EXPECT_EQ(calls, 0);
}

TEST(DrainSignal, TimeIsLeftFromTheRequestOn) {
  DrainSignal unlimited;
  EXPECT_EQ(unlimited.TimeLeft(), absl::InfiniteDuration());
  unlimited.Request("now");
  EXPECT_EQ(unlimited.TimeLeft(), absl::InfiniteDuration());
  DrainSignal limited(absl::Hours(1));
  EXPECT_EQ(limited.TimeLeft(), absl::InfiniteDuration());
  limited.Request("now");
  EXPECT_LE(limited.TimeLeft(), absl::Hours(1));
  EXPECT_GT(limited.TimeLeft(), absl::Minutes(10));
}

TEST(DrainSignalDeathTest, AProcessThatHangsEndsAtItsTimeout) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    DrainSignal drain(absl::Milliseconds(50), 7);
    drain.Request("test");
    while (true) pause();
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(7), "did not end within --exit-timeout");
}

TEST(SignalWaiterDeathTest, HangupReloads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang_up = [] {
    BlockSignals();
    DrainSignal drain;
    const SignalWaiter waiter(drain);
    kill(getpid(), SIGHUP);
    drain.Wait([] { _exit(5); });
  };
  EXPECT_EXIT(hang_up(), ::testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace permafrost
