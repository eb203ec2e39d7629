#include "daemon/drain.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace permafrost {
namespace {

// What a daemon does with its signals, as the exit code of a process of its own.
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

}  // namespace
}  // namespace permafrost
