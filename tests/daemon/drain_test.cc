#include "daemon/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "jobs/manager_fixture.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Handles signals as a daemon does, in a process of its own. The exit code is the result.
[[noreturn]] void WaitForDrain(int signals_sent) {
  BlockSignals();
  DrainSignal drain;
  const SignalWaiter waiter(drain);
  for (int i = 0; i < signals_sent; ++i) {
    kill(getpid(), SIGTERM);
    const bool named = drain.Wait() == "SIGTERM";
    if (!named) _exit(1);
  }
  // A second signal ends the process here, whatever the main thread waits for.
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

class ReloadTest : public testing::Test {
 protected:
  // Returns what a reload prints. `options` then holds the options after it.
  std::string ReloadWith(const ParsedOptions& read, Options& options) {
    testing::internal::CaptureStdout();
    Reload([&] { return read; }, {.tokens = *tokens_, .certificates = nullptr, .drain = drain_}, options);
    return testing::internal::GetCapturedStdout();
  }

  const TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "tokens.json";
  std::unique_ptr<access::TokenStore> tokens_ = *access::TokenStore::Open(path_);
  DrainSignal drain_{absl::Hours(1)};
};

TEST_F(ReloadTest, WhatCanChangeDoesAndTheRestIsToldOf) {
  Options options, next;
  next.exit_timeout = absl::Seconds(7000);
  next.listen = "127.0.0.1:1";
  const std::vector<OptionChange> changes = ChangesBetween(options, next);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].name, "listen");
  EXPECT_FALSE(changes[0].reloads);
  EXPECT_EQ(changes[1].name, "exit-timeout");
  EXPECT_EQ(changes[1].to, "7000");
  EXPECT_TRUE(changes[1].reloads);
  const std::string told = ReloadWith({.options = next, .text = "", .exit_code = 0}, options);
  EXPECT_THAT(told, HasSubstr("exit-timeout 25 -> 7000"));
  EXPECT_THAT(told, HasSubstr("listen 127.0.0.1:7433 -> 127.0.0.1:1: takes effect at the next start"));
  EXPECT_EQ(options.exit_timeout, absl::Seconds(7000));
  EXPECT_EQ(options.listen, Options().listen);
  drain_.Request("now");
  EXPECT_LE(drain_.TimeLeft(), absl::Seconds(7000));
}

TEST_F(ReloadTest, BadOptionsLeaveTheOldOnes) {
  Options options;
  const std::string told = ReloadWith(
      {.options = std::nullopt, .text = "permafrostd: f: exit-timeout \"x\": accepted: seconds\n", .exit_code = 2},
      options);
  EXPECT_THAT(told, HasSubstr("options stay as they were: f: exit-timeout \"x\""));
  EXPECT_EQ(options.exit_timeout, Options().exit_timeout);
}

TEST_F(ReloadTest, TokensAreReadAgainAndABadFileLeavesThem) {
  Options options;
  const auto made = tokens_->Create(access::Role::kViewer, "one", absl::InfiniteFuture());
  ASSERT_TRUE(made.ok()) << made.status();
  std::ofstream(path_) << "no JSON";
  EXPECT_THAT(ReloadWith({.options = options, .text = "", .exit_code = 0}, options),
              HasSubstr("tokens stay as they were"));
  EXPECT_TRUE(tokens_->Find(made->secret).has_value());
  std::filesystem::remove(path_);
  EXPECT_THAT(ReloadWith({.options = options, .text = "", .exit_code = 0}, options), HasSubstr("0 tokens"));
  EXPECT_FALSE(tokens_->Find(made->secret).has_value()) << "the file has it no more";
}

// Long enough for the part of the work that stops at once.
constexpr absl::Duration kShort = absl::Seconds(1);

// A catalog whose imports never stop.
class StuckImports : public jobs::FakeCatalog {
 public:
  void StopImports() override { absl::Notification().WaitForNotification(); }
};

// A server whose job `stuck` reaches no step boundary.
class StuckServer {
 public:
  StuckServer() {
    server_.Run("stuck");
    server_->Drain();
  }
  jobs::JobManager& manager() { return server_.manager(); }

 private:
  const TempDir dir_;
  jobs::Server server_{dir_.path()};
};

TEST(StopWork, WaitsForBoth) {
  const TempDir dir;
  for (const absl::Duration timeout : {absl::ZeroDuration(), absl::Hours(1), absl::InfiniteDuration()}) {
    jobs::Server server(dir.path());
    server->Drain();
    EXPECT_TRUE(StopWork(timeout, server.catalog(), server.manager(), JobId()).ok()) << timeout;
  }
}

// The stuck work uses these objects to the end of the process, so they are never destroyed. It never continues
// either, because it would write to the log while the process ends. They are static, so that the leak checker finds
// them reachable.
TEST(StopWork, NamesTheJobThatGoesOn) {
  static auto& catalog = *new jobs::FakeCatalog();
  static auto& server = *new StuckServer();
  const absl::Status stopped = StopWork(kShort, catalog, server.manager(), JobId("stuck"));
  EXPECT_EQ(stopped.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stopped.message()), AllOf(HasSubstr("job stuck"), HasSubstr("within 1s (--exit-timeout)")));
}

TEST(StopWork, NamesTheImportThatGoesOn) {
  static auto& catalog = *new StuckImports();
  static auto& server = *new StuckServer();
  const absl::Status stopped = StopWork(kShort, catalog, server.manager(), JobId("stuck"));
  EXPECT_EQ(stopped.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("import did not stop"));
}

}  // namespace
}  // namespace permafrost
