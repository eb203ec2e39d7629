// Tests that a client that follows a job's log is notified of lines, but not of other changes of the job.
#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/mutex.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

// Counts the calls of a listener.
class Calls {
 public:
  ChangeHub::Listener listener() {
    return [this] {
      const absl::MutexLock lock(&mu_);
      ++count_;
    };
  }
  bool AwaitOneMore() {
    const absl::MutexLock lock(&mu_);
    const auto more = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return count_ > seen_; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&more), absl::Seconds(60))) return false;
    seen_ = count_;
    return true;
  }
  int count() const {
    const absl::MutexLock lock(&mu_);
    return count_;
  }

 private:
  mutable absl::Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0, seen_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(FollowedLogTest, TellsOfLinesOfTheEndAndOfTheDeletion) {
  const TempDir dir;
  Server server(dir.path() / "state");
  const JobId id("job-a");
  server.Create("job-a");
  Calls lines, changes;
  const auto follows = server->SubscribeLog(id, lines.listener());
  const auto watches = server->Subscribe(id, changes.listener());
  // A change that writes no line.
  ASSERT_TRUE(server->Update(id, {.priority = 3}).ok());
  EXPECT_TRUE(changes.AwaitOneMore());
  EXPECT_EQ(lines.count(), 0);
  ASSERT_TRUE(server->Pause(id).ok());
  EXPECT_TRUE(lines.AwaitOneMore()) << "a line";
  ASSERT_TRUE(server->Cancel(id).ok());
  EXPECT_TRUE(lines.AwaitOneMore()) << "its end";
  // The log is complete now.
  const auto log = server->ReadLog(id, 0, 1 << 20);
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log->complete);
  ASSERT_TRUE(server->Delete(id).ok());
  EXPECT_TRUE(lines.AwaitOneMore());
}

}  // namespace
}  // namespace permafrost::jobs
