// Tests permafrostd as a systemd service of Type=notify: what it sends to a manager's socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon.h"
#include "notify_socket.h"
#include "process.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Sets an environment variable of this process and of the processes that it starts.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

void ServeUnder(const std::string& socket) {
  const TempDir dir;
  NotifySocket manager(socket);
  const Variable notify("NOTIFY_SOCKET", socket);
  const Variable watchdog("WATCHDOG_USEC", "200000");
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  EXPECT_THAT(manager.Next(), StartsWith("EXTEND_TIMEOUT_USEC="));
  EXPECT_THAT(manager.NextOf("STATUS="), HasSubstr("starting"));
  EXPECT_THAT(manager.NextOf("READY=1\n"), HasSubstr(absl::StrCat("STATUS=serving on ", daemon.grpc())));
  EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
  EXPECT_EQ(manager.NextOf("WATCHDOG="), "WATCHDOG=1");
  EXPECT_EQ(daemon.Stop(), 0);
  EXPECT_EQ(manager.NextOf("STOPPING=1\n"), "STOPPING=1\nSTATUS=draining: SIGTERM");
}

TEST(Service, TheManagerHearsHowTheDaemonStands) {
  const TempDir dir;
  ServeUnder((dir.path() / "notify").string());
}

TEST(Service, TheManagersSocketMayBeAbstract) { ServeUnder(absl::StrCat("@permafrost-e2e-", getpid())); }

TEST(Service, ALogAsJsonIsJsonToTheLastLine) {
  const TempDir dir;
  // No machine has this address, so the daemon ends by itself. It must log even this as JSON.
  const Output run = RunCommand({PERMAFROSTD, "--log-format", "json", "--state-dir", (dir.path() / "state").string(),
                                 "--listen", "127.0.0.1:0", "--metrics", "203.0.113.1:1", "--insecure"});
  EXPECT_EQ(run.code, 1);
  std::istringstream lines(run.err);
  nlohmann::json event;
  for (std::string line; std::getline(lines, line);) event = nlohmann::json::parse(line);
  EXPECT_EQ(event.at("severity"), "error");
  EXPECT_THAT(event.at("message").get<std::string>(), HasSubstr("--metrics"));
}

}  // namespace
}  // namespace permafrost::e2e
