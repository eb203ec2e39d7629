#include "daemon/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "api/fakes.h"

namespace permafrost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Long enough for the half that ends at once.
constexpr absl::Duration kShort = absl::Seconds(1);

// Each ends when a test says so.
class SlowJobs : public api::FakeJobManager {
 public:
  void Join() override { ended_.WaitForNotification(); }
  void End() { ended_.Notify(); }

 private:
  absl::Notification ended_;
};
class SlowImports : public api::FakeCatalog {
 public:
  void StopImports() override { stopped_.WaitForNotification(); }
  void End() { stopped_.Notify(); }

 private:
  absl::Notification stopped_;
};

TEST(StopWork, WaitsForBoth) {
  for (const absl::Duration timeout : {absl::ZeroDuration(), absl::Hours(1), absl::InfiniteDuration()}) {
    api::FakeCatalog catalog;
    api::FakeJobManager jobs;
    EXPECT_TRUE(StopWork(timeout, catalog, jobs, JobId()).ok()) << timeout;
  }
}

// Work that goes on uses what it was given, which therefore outlives these tests; static, so that it does not count as
// lost.
TEST(StopWork, NamesTheJobThatGoesOn) {
  static auto& catalog = *new api::FakeCatalog();
  static auto& jobs = *new SlowJobs();
  const absl::Status stopped = StopWork(kShort, catalog, jobs, JobId("stuck"));
  EXPECT_EQ(stopped.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stopped.message()), AllOf(HasSubstr("job stuck"), HasSubstr("within 1s (--exit-timeout)")));
  jobs.End();
}

TEST(StopWork, NamesTheImportThatGoesOn) {
  static auto& catalog = *new SlowImports();
  static auto& jobs = *new api::FakeJobManager();
  const absl::Status stopped = StopWork(kShort, catalog, jobs, JobId("stuck"));
  EXPECT_EQ(stopped.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("import did not stop"));
  catalog.End();
}

}  // namespace
}  // namespace permafrost
