// What becomes of jobs when the server ends, cleanly or not.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

class RecoveryTest : public testing::Test {
 protected:
  // The state directory as SIGKILL would leave it now. The runner is held, so that nobody writes meanwhile.
  std::filesystem::path Crash(const Server& server) {
    const std::filesystem::path copy = dir_.path() / ("after-crash-" + std::to_string(++crashes_));
    std::filesystem::copy(server.state_dir(), copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  const TempDir dir_;
  const std::filesystem::path state_ = dir_.path() / "state";
  int crashes_ = 0;
};

TEST_F(RecoveryTest, ADrainedJobResumesInTheNextServer) {
  absl::Time started;
  {
    Server server(state_);
    server.runner().Hold();
    server->Start();
    server.Create("job-a", 3);
    server.runner().Permit(4);
    server.runner().AwaitHeld();
    server.Create("job-b", 1);
    EXPECT_EQ(server->Drain().value(), "job-a");
    EXPECT_TRUE(server->draining());
    EXPECT_EQ(server->Drain().value(), "job-a") << "idempotent";
    server.runner().Permit(1);
    server->Join();
    const Job job = server.Get("job-a");
    EXPECT_EQ(job.state, JobState::kQueued);
    EXPECT_EQ(job.progress.checkpoint_step, 4);
    EXPECT_EQ(job.resumes, 0);
    started = job.start_time;
    EXPECT_EQ(server.Get("job-b").state, JobState::kQueued) << "a draining server starts nothing";
    EXPECT_EQ(server->Drain().value(), "");
    EXPECT_THAT(server.Log("job-a"), HasSubstr("drained after step 4"));
    EXPECT_EQ(server.runner().runs().size(), 1u);
  }
  Server server(state_);
  EXPECT_EQ(server.Get("job-a").state, JobState::kQueued);
  server->Start();
  const Job job = server.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.resumes, 1);
  EXPECT_EQ(job.start_time, started) << "the first start";
  EXPECT_EQ(job.progress.step, 9);
  EXPECT_EQ(job.epochs.size(), 3u) << "with the one of the first run";
  EXPECT_THAT(server.Log("job-a"), HasSubstr("resumed on cpu, 2 threads (resume 1)"));
  EXPECT_EQ(server.Metric("permafrost_job_resumes_total"), 1);
  EXPECT_EQ(server.AwaitEnd("job-b").resumes, 0);
  EXPECT_EQ(server.Metric("permafrost_train_steps_total"), 5 + 3) << "of this process: steps 5 to 9, and job-b's";
}

TEST_F(RecoveryTest, ARunningJobSurvivesACrash) {
  Server server(state_);
  server.runner().Hold();
  server->Start();
  server.Create("job-a", 3);
  server.runner().Permit(5);  // one epoch and its checkpoint, then two steps that are lost
  server.runner().AwaitHeld();
  Server later(Crash(server));
  const Job queued = later.Get("job-a");
  EXPECT_EQ(queued.state, JobState::kQueued);
  EXPECT_EQ(queued.progress.checkpoint_step, 3);
  EXPECT_EQ(queued.epochs.size(), 1u);
  EXPECT_EQ(later.Metric("permafrost_jobs", {{"state", "queued"}}), 1);
  EXPECT_THAT(later.Log("job-a"), HasSubstr("interrupted"));
  later->Start();
  const Job job = later.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.resumes, 1);
  EXPECT_EQ(job.progress.step, 9);
  EXPECT_EQ(job.epochs.size(), 3u);
}

TEST_F(RecoveryTest, AJobBeingCancelledAtACrashIsCancelled) {
  Server server(state_);
  server.runner().Hold();
  server->Start();
  server.Create("job-a", 3);
  server.runner().Permit(1);
  server.runner().AwaitHeld();
  ASSERT_EQ(server->Cancel(JobId("job-a"))->state, JobState::kCancelling);
  Server later(Crash(server));
  const Job job = later.Get("job-a");
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_NE(job.end_time, absl::InfinitePast());
  EXPECT_THAT(later.Log("job-a"), HasSubstr("cancelled after step 1"));
  EXPECT_TRUE(later->ReadLog(JobId("job-a"), 0, 1 << 20)->complete);
}

TEST_F(RecoveryTest, QueuedAndEndedJobsAreAsTheyWere) {
  Server server(state_);
  server->Start();
  server.Create("done");
  server.AwaitEnd("done");
  server.runner().Hold();
  server.Create("running", 3, 100);
  server.runner().AwaitHeld();
  const Job waiting = server.Create("waiting", 1, 7);
  Server later(Crash(server));
  EXPECT_EQ(later.Get("done").state, JobState::kSucceeded);
  EXPECT_EQ(later.Get("done").epochs.size(), 2u);
  EXPECT_EQ(later.Get("waiting").state, JobState::kQueued);
  EXPECT_EQ(later.Get("waiting").spec, waiting.spec);
  later->Start();
  EXPECT_EQ(later.AwaitEnd("waiting").resumes, 0) << "it had not begun";
}

TEST_F(RecoveryTest, ACrashBeforeTheFirstCheckpointBeginsAnew) {
  Server server(state_);
  server.runner().Hold();
  server->Start();
  server.Create("job-a", 1);
  server.runner().Permit(2);
  server.runner().AwaitHeld();
  Server later(Crash(server));
  later->Start();
  const Job job = later.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.progress.step, 3);
  EXPECT_EQ(later.Metric("permafrost_train_steps_total"), 3);
  EXPECT_EQ(later.Metric("permafrost_train_graphs_total"), 30);
}

TEST_F(RecoveryTest, AJobThatTakesTheServerDownEachTimeIsFailed) {
  // A life of the server a letter. c: it dies while the job runs; k: it dies after a checkpoint; d: it drains;
  // i: it dies before the job runs.
  const struct {
    const char* why;
    std::string lives;
    JobState want;
  } kCases[] = {
      {"fewer", "cccc", JobState::kQueued},
      {"five", "ccccc", JobState::kFailed},
      {"after a checkpoint too", "kccccc", JobState::kFailed},
      {"a newer checkpoint begins the count anew", "cccckcccc", JobState::kQueued},
      {"so does a drain, though its checkpoint is of no later step", "ccccdcccc", JobState::kQueued},
      {"but the ones after it count", "cdccccc", JobState::kFailed},
      {"a run that gets further each time reaches its end", "kkkkkkk", JobState::kQueued},
      {"the server's death while the job waits is not its doing", "iicccc", JobState::kQueued},
  };
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const auto& c = kCases[i];
    std::filesystem::path state = dir_.path() / ("case-" + std::to_string(i));
    bool created = false;
    for (const char life : c.lives) {
      Server server(state);
      if (!std::exchange(created, true)) server.Create("job-a", 100);
      ASSERT_EQ(server.Get("job-a").state, JobState::kQueued) << c.why;
      server.runner().Hold();
      if (life != 'i') {
        server->Start();
        if (life == 'k') server.runner().Permit(FakeRunner::kStepsPerEpoch);
        server.runner().AwaitHeld();
      }
      if (life == 'd') {
        server->Drain();
        server.runner().Permit(1);
        server->Join();
        continue;
      }
      state = Crash(server);
    }
    Server server(state);
    const Job job = server.Get("job-a");
    EXPECT_EQ(job.state, c.want) << c.why;
    if (c.want != JobState::kFailed) continue;
    EXPECT_THAT(job.error, HasSubstr("the server died 5 times")) << c.why;
    EXPECT_NE(job.end_time, absl::InfinitePast()) << c.why;
    EXPECT_THAT(server.Log("job-a"), HasSubstr("failed: the server died 5 times")) << c.why;
    EXPECT_EQ(server.Metric("permafrost_jobs", {{"state", "failed"}}), 1) << c.why;
    server->Start();
    server.Create("job-b", 1);
    EXPECT_EQ(server.AwaitEnd("job-b").state, JobState::kSucceeded) << c.why;
    EXPECT_THAT(server.runner().runs(), testing::ElementsAre("job-b")) << c.why;
  }
}

TEST_F(RecoveryTest, ACancelThatComesAfterTheDrainStillCancels) {
  Server server(state_);
  server.runner().Hold();
  server->Start();
  server.Create("job-a", 3);
  server.runner().AwaitHeld();
  server->Drain();
  ASSERT_TRUE(server->Cancel(JobId("job-a")).ok());
  server.runner().Release();
  server->Join();
  EXPECT_EQ(server.Get("job-a").state, JobState::kCancelled);
}

TEST_F(RecoveryTest, AnEndThatWasNeverStoredIsReachedAgain) {
  {
    Server server(state_);
    SQLite::Database other((state_ / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000);
    other.exec(
        "CREATE TRIGGER full BEFORE UPDATE ON jobs WHEN NEW.state = 'succeeded' "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END");
    server.runner().Hold();
    server->Start();
    server.Create("job-a", 1);
    server.runner().AwaitHeld();
    server.runner().Permit(3);
    // The drain comes while the end is tried again and again.
    server.Await("job-a", [](const Job& job) { return job.progress.checkpoint_step == 3; });
    server->Drain();
    server->Join();
    other.exec("DROP TRIGGER full");
  }
  Server server(state_);
  server->Start();
  EXPECT_EQ(server.AwaitEnd("job-a").state, JobState::kSucceeded);
}

TEST_F(RecoveryTest, ADrainedServerStartsNothing) {
  Server server(state_);
  server.Create("job-a");
  server->Drain();
  server->Start();
  server->Join();
  EXPECT_EQ(server.Get("job-a").state, JobState::kQueued);
  EXPECT_TRUE(server.runner().runs().empty());
}

}  // namespace
}  // namespace permafrost::jobs
