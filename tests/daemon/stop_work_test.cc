#include "daemon/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "jobs/manager_fixture.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Long enough for the half that ends at once.
constexpr absl::Duration kShort = absl::Seconds(1);

// Its imports never stop.
class StuckImports : public jobs::FakeCatalog {
 public:
  void StopImports() override { absl::Notification().WaitForNotification(); }
};

// A server whose job `stuck` comes to no step boundary.
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

// Work that goes on uses what it was given, which therefore outlives these tests. It is never let go on, since it would
// write to the log while the process ends. Static, so that it does not count as lost.
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
