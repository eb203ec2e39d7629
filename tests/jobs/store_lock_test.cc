// Tests a database that another process has locked for writing. Training continues, and readers are answered. A
// change that could not be made in time is never made later.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

// With a wait of five seconds for each epoch, the test would exceed its time limit.
constexpr int64_t kEpochs = 30;

class StoreLockTest : public testing::Test {
 protected:
  // Locks the database as `sqlite3 permafrost.db 'BEGIN IMMEDIATE'` does, until Unlock.
  void Lock() { other_.exec("BEGIN IMMEDIATE"); }
  void Unlock() { other_.exec("COMMIT"); }
  int Stored(const std::string& table) { return other_.execAndGet("SELECT COUNT(*) FROM " + table).getInt(); }

  const TempDir dir_;
  Server server_{dir_.path()};
  SQLite::Database other_{(dir_.path() / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000};
};

TEST_F(StoreLockTest, StepsGoOnAndWhatTheyToldIsStoredLater) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", kEpochs + 1);
  server_.runner().Permit(1);
  server_.AwaitState("job-a", JobState::kRunning);
  server_.runner().AwaitHeld();
  Lock();
  server_.runner().Permit(kEpochs * FakeRunner::kStepsPerEpoch);
  server_.runner().AwaitHeld();
  const Job job = server_.Get("job-a");
  EXPECT_EQ(job.progress.step, 1 + kEpochs * FakeRunner::kStepsPerEpoch);
  EXPECT_EQ(job.epochs.size(), static_cast<size_t>(kEpochs));
  EXPECT_THAT(job.trouble.error, HasSubstr("locked")) << "a checkpoint would hide the epochs from a resumed run";
  const auto listed = server_->List(10, "", {});
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->jobs.at(0).progress.step, job.progress.step);
  EXPECT_EQ(Stored("epochs"), 0);
  Unlock();
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded);
  EXPECT_EQ(Stored("epochs"), kEpochs + 1);
}

TEST_F(StoreLockTest, AChangeThatWaitsKeepsNobodyElse) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 2);
  server_.runner().Permit(1);
  server_.AwaitState("job-a", JobState::kRunning);
  server_.runner().AwaitHeld();
  Lock();
  std::atomic<bool> wanted = true;
  absl::Status answer;
  std::thread submit([&] {
    const Patience call(absl::Hours(1), [&wanted] { return wanted.load(); });
    answer = server_->Create(Server::Request("ghost")).status();
  });
  server_.runner().Permit(FakeRunner::kStepsPerEpoch);
  server_.runner().AwaitHeld();
  EXPECT_EQ(server_.Get("job-a").progress.step, 1 + FakeRunner::kStepsPerEpoch);
  EXPECT_TRUE(server_->List(10, "", {}).ok());
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("runner begins"));
  {
    const Patience none(absl::ZeroDuration());
    const absl::Status refused = server_->Cancel(JobId("job-a")).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("locked"));
  }
  // The client stops waiting, as at its deadline.
  wanted = false;
  submit.join();
  EXPECT_TRUE(absl::IsCancelled(answer)) << answer;
  Unlock();
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded) << "it was not cancelled later";
  EXPECT_TRUE(absl::IsNotFound(server_->Get(JobId("ghost")).status()));
  EXPECT_EQ(Stored("jobs"), 1);
}

TEST_F(StoreLockTest, ASubmitThatCouldNotBeStoredInTimeIsUnavailableAndMayComeAgain) {
  CreateRequest request = Server::Request("job-a");
  request.request_id = "r1";
  Lock();
  {
    const Patience call(absl::Milliseconds(50));
    const absl::Status refused = server_->Create(request).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("database is locked by another process"));
  }
  EXPECT_TRUE(absl::IsNotFound(server_->Get(JobId("job-a")).status()));
  Unlock();
  EXPECT_TRUE(server_->Create(request).ok());
  EXPECT_EQ(Stored("jobs"), 1);
}

TEST_F(StoreLockTest, AChangeWaitsForALockThatIsShort) {
  Lock();
  std::thread unlock([this] {
    absl::SleepFor(absl::Milliseconds(50));
    Unlock();
  });
  const auto created = server_->Create(Server::Request("job-a"));
  unlock.join();
  EXPECT_TRUE(created.ok()) << created.status();
}

TEST_F(StoreLockTest, ARunWhoseStateCannotBeStoredGoesOnAndTellsItLater) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 3);
  server_.AwaitState("job-a", JobState::kPreparing);
  server_.runner().AwaitHeld();
  Lock();
  server_.runner().Permit(2);
  server_.runner().AwaitHeld();
  EXPECT_EQ(server_.Get("job-a").progress.step, 2);
  EXPECT_EQ(server_.Get("job-a").state, JobState::kPreparing) << "no state is told that is not on record";
  Unlock();
  server_.runner().Release();
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded) << job.error;
}

}  // namespace
}  // namespace permafrost::jobs
