#include "daemon/service_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "notify_socket.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::MatchesRegex;

// Short, so that a test sees many of them.
constexpr absl::Duration kInterval = absl::Milliseconds(20);

ServiceEnvironment ReadFrom(const std::map<std::string, std::string>& variables) {
  return ServiceEnvironment::Read([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

// Waits until `counter` has grown by `more`.
void AwaitMore(const std::atomic<int>& counter, int more) {
  const int end = counter + more;
  while (counter < end) std::this_thread::yield();
}

TEST(ServiceEnvironment, IsReadFromTheVariablesOfTheManager) {
  const ServiceEnvironment none = ReadFrom({});
  EXPECT_EQ(none.socket, "");
  EXPECT_EQ(none.watchdog, absl::ZeroDuration());
  const ServiceEnvironment all = ReadFrom(
      {{"NOTIFY_SOCKET", "/run/notify"}, {"WATCHDOG_USEC", "60000000"}, {"WATCHDOG_PID", absl::StrCat(getpid())}});
  EXPECT_EQ(all.socket, "/run/notify");
  EXPECT_EQ(all.watchdog, absl::Minutes(1));
  EXPECT_EQ(ReadFrom({{"WATCHDOG_USEC", "1000"}}).watchdog, absl::Milliseconds(1));
  // Neither the PID of another process nor a text that is no number starts the watchdog.
  EXPECT_EQ(ReadFrom({{"WATCHDOG_USEC", "1000"}, {"WATCHDOG_PID", absl::StrCat(getpid() + 1)}}).watchdog,
            absl::ZeroDuration());
  EXPECT_EQ(ReadFrom({{"WATCHDOG_USEC", "soon"}}).watchdog, absl::ZeroDuration());
}

TEST(ServiceNotifier, TellsEachPhaseOfTheDaemon) {
  const TempDir dir;
  for (const std::string& name : {(dir.path() / "notify").string(), absl::StrCat("@permafrost-test-", getpid())}) {
    NotifySocket manager(name);
    ServiceNotifier notifier({.socket = name, .watchdog = kInterval});
    // Startup may take longer than the manager's timeout, so the daemon extends it.
    EXPECT_THAT(manager.Next(), MatchesRegex("EXTEND_TIMEOUT_USEC=[1-9][0-9]+")) << name;
    notifier.Status("first line\nsecond");
    EXPECT_EQ(manager.NextOf("STATUS="), "STATUS=first line second");
    notifier.Ready("serving", {});
    EXPECT_EQ(manager.NextOf("READY="), "READY=1\nSTATUS=serving");
    EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
    notifier.Reloading();
    EXPECT_THAT(manager.NextOf("RELOADING="), MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+"));
    notifier.Reloaded();
    EXPECT_EQ(manager.NextOf("READY="), "READY=1");
    notifier.Stopping("draining: SIGTERM");
    EXPECT_EQ(manager.NextOf("STOPPING="), "STOPPING=1\nSTATUS=draining: SIGTERM");
  }
}

TEST(ServiceNotifier, AnUnhealthyDaemonIsNotSaidToLive) {
  const TempDir dir;
  const std::string name = (dir.path() / "notify").string();
  NotifySocket manager(name);
  std::atomic<bool> is_healthy = true;
  std::atomic<int> asked = 0;
  ServiceNotifier notifier({.socket = name, .watchdog = kInterval});
  notifier.Ready("serving", [&] {
    ++asked;
    return is_healthy.load();
  });
  EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
  is_healthy = false;
  AwaitMore(asked, 2);  // the first of these two calls may still have reported health
  manager.HasCome("");
  AwaitMore(asked, 3);
  EXPECT_FALSE(manager.HasCome("WATCHDOG="));
  is_healthy = true;
  EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
  // A drain has its own time limit, so the watchdog stays fed.
  is_healthy = false;
  notifier.Stopping("draining");
  EXPECT_EQ(manager.NextOf("STOPPING="), "STOPPING=1\nSTATUS=draining");
  EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
}

TEST(ServiceNotifier, ManagersThatAreNotThereAreDoneWithout) {
  const TempDir dir;
  for (const std::string& name : {std::string(), (dir.path() / "nobody").string(), std::string("relative"),
                                  std::string("vsock:2:9999"), "/" + std::string(200, 'x')}) {
    ServiceNotifier notifier({.socket = name, .watchdog = kInterval});
    notifier.Status("starting");
    notifier.Ready("serving", [] { return true; });
    notifier.Stopping("draining");
  }
}

TEST(ServiceNotifier, AManagerThatGoesAwayTakesNothingDown) {
  const TempDir dir;
  const std::string name = (dir.path() / "notify").string();
  auto manager = std::make_unique<NotifySocket>(name);
  std::atomic<int> asked = 0;
  ServiceNotifier notifier({.socket = name, .watchdog = kInterval});
  notifier.Ready("serving", [&] {
    ++asked;
    return true;
  });
  EXPECT_EQ(manager->NextOf("WATCHDOG="), "WATCHDOG=1");
  manager.reset();
  AwaitMore(asked, 3);
  notifier.Stopping("draining");
}

}  // namespace
}  // namespace permafrost
