// Tests jobs whose rows the database cannot store for a while.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

class StoreTroubleTest : public testing::Test {
 protected:
  // From now on, until Allow, each change of this kind fails.
  void Refuse(const std::string& change) {
    other_.exec(absl::StrCat("CREATE TRIGGER full BEFORE ", change, " BEGIN SELECT RAISE(ABORT, 'disk full'); END"));
  }
  void Allow() { other_.exec("DROP TRIGGER full"); }

  const TempDir dir_;
  Server server_{dir_.path()};
  SQLite::Database other_{(dir_.path() / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000};
};

TEST_F(StoreTroubleTest, AJobWhoseStartCannotBeStoredSaysSo) {
  server_.Create("job-a");
  Refuse("UPDATE ON jobs");
  server_->Start();
  server_.Await("job-a", [](const Job& job) { return absl::StrContains(job.trouble.error, "disk full"); });
  EXPECT_EQ(server_.Get("job-a").state, JobState::kQueued);
  EXPECT_THAT(server_->List(1, "", {})->jobs.at(0).trouble.error, HasSubstr("disk full"));
  Allow();
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.trouble, Trouble()) << "no run was tried in vain";
}

// The error is shown only as long as the change is retried.
TEST_F(StoreTroubleTest, AJobWhosePauseOrCancelCouldNotBeStoredAtFirstKeepsNoErrorOfIt) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 3);
  server_.runner().AwaitHeld();
  ASSERT_TRUE(server_->Pause(JobId("job-a")).ok());
  Refuse("UPDATE ON jobs");
  server_.runner().Release();
  server_.Await("job-a", [](const Job& job) { return absl::StrContains(job.trouble.error, "disk full"); });
  Allow();
  server_.Await("job-a", [](const Job& job) { return job.state == JobState::kPaused; });
  EXPECT_EQ(server_.Get("job-a").trouble, Trouble());
  // The start of this job cannot be stored.
  Refuse("UPDATE ON jobs WHEN NEW.state = 'preparing'");
  server_.Create("job-b");
  server_.Await("job-b", [](const Job& job) { return absl::StrContains(job.trouble.error, "disk full"); });
  const auto cancelled = server_->Cancel(JobId("job-b"));
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state, JobState::kCancelled);
  EXPECT_EQ(server_.Get("job-b").trouble, Trouble());
}

TEST_F(StoreTroubleTest, EpochsThatCouldNotBeStoredAreStoredLater) {
  const auto stored = [&] { return other_.execAndGet("SELECT COUNT(*) FROM epochs").getInt(); };
  Refuse("INSERT ON epochs");
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 3);
  server_.runner().Permit(FakeRunner::kStepsPerEpoch);
  server_.runner().AwaitHeld();
  EXPECT_EQ(server_.Get("job-a").epochs.size(), 1u) << "told all the same";
  EXPECT_EQ(server_.Get("job-a").progress.step, FakeRunner::kStepsPerEpoch) << "the run goes on";
  EXPECT_EQ(server_.Get("job-a").progress.checkpoint_step, 0) << "which would hide the epoch from a resumed run";
  EXPECT_THAT(server_.Get("job-a").trouble.error, HasSubstr("disk full"));
  EXPECT_EQ(stored(), 0);
  Allow();
  server_.runner().Permit(FakeRunner::kStepsPerEpoch);
  server_.runner().AwaitHeld();
  EXPECT_EQ(stored(), 2) << "before the next checkpoint";
  EXPECT_EQ(server_.Get("job-a").trouble, Trouble());
  Refuse("INSERT ON epochs");
  server_.runner().Release();
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (server_.Log("job-a").find("succeeded") == std::string::npos && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(server_.Get("job-a").state, JobState::kRunning) << "no end before the last epoch is stored";
  server_.Await("job-a", [](const Job& job) { return absl::StrContains(job.trouble.error, "disk full"); });
  EXPECT_THAT(server_->List(1, "", {})->jobs.at(0).trouble.error, HasSubstr("disk full"));
  Allow();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded);
  EXPECT_EQ(stored(), 3);
}

TEST_F(StoreTroubleTest, AnEndThatCannotBeStoredIsNotToldButTriedAgain) {
  Refuse("UPDATE ON jobs WHEN NEW.state = 'succeeded'");
  server_->Start();
  server_.Create("job-a");
  // The log's last line is on disk before the state is stored. It comes without a notice, so the loop polls.
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (server_.Log("job-a").find("succeeded") == std::string::npos) {
    if (absl::Now() > deadline) {
      Allow();
      FAIL() << "no last line before the end is stored";
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(server_.Get("job-a").state, JobState::kRunning);
  EXPECT_FALSE(server_->ReadLog(JobId("job-a"), 0, 1 << 20)->complete);
  Allow();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded);
  EXPECT_EQ(server_.Metric("permafrost_jobs_finished_total", {{"state", "succeeded"}}), 1);
}

}  // namespace
}  // namespace permafrost::jobs
