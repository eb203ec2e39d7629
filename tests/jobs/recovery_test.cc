// Tests what becomes of jobs when the server ends, cleanly or not.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/resources.h"
#include "jobs/job_files.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

class RecoveryTest : public testing::Test {
 protected:
  // Copies the state directory as SIGKILL would leave it now, and returns the copy. The runner is held, so that
  // nobody writes meanwhile.
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
  server.runner().Permit(5);  // one epoch with its checkpoint, and two steps that are lost
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

TEST_F(RecoveryTest, AJobThatKillsTheServerAtTheSameStepIsFailed) {
  // Each letter is one life of the server. A run begins at the newest checkpoint, and every third step writes one.
  // 0-9: the server dies after this number of steps.
  // x: the server dies before the run's first step.
  // d: the server drains.
  // i: the server dies before the job runs.
  // r: the server dies after one step, together with the machine.
  const struct {
    const char* why;
    std::string lives;
    JobState want;
  } kCases[] = {
      {"fewer", "1111", JobState::kQueued},
      {"five at one step", "11111", JobState::kFailed},
      {"five before any step", "xxxxx", JobState::kFailed},
      {"after a checkpoint too", "41111", JobState::kFailed},
      {"a step further or less each time: killed from outside", "12121212121212", JobState::kQueued},
      {"another step begins the count anew", "111121111", JobState::kQueued},
      {"a drain begins the count anew", "1111d1111", JobState::kQueued},
      {"but the ones after it count", "1d11111", JobState::kFailed},
      {"a run that gets further each time reaches its end", "3333333", JobState::kQueued},
      {"before any step, but after a new checkpoint each time", "x3x3x3x3x3x3", JobState::kQueued},
      {"the server's death while the job waits is not its doing", "ii1111", JobState::kQueued},
      {"a reboot is not its doing", "rrrrrrr1111", JobState::kQueued},
      {"a reboot between is passed over", "11r111", JobState::kFailed},
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
      if (life == 'i') {
        state = Crash(server);
        continue;
      }
      if (life == 'x') {
        server.runner().SetScript(
            [&](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
              while (context.stop_requested() == train::StopRequest::kNone) absl::SleepFor(absl::Milliseconds(1));
              return train::RunOutcome{train::RunEnd::kDrained, {}};
            });
      }
      server->Start();
      server.runner().AwaitRuns(1);
      if (life == 'd') {
        server->Drain();
        server.runner().Permit(1);
        server->Join();
        continue;
      }
      if (life != 'x') {
        server.runner().Permit(life == 'r' ? 1 : life - '0');
        server.runner().AwaitHeld();
      }
      state = Crash(server);
      if (life == 'r') {
        const auto mark = state / "jobs/job-a/last-step";
        std::string text = *ReadFile(mark);
        ASSERT_EQ(text.rfind(BootId(), 0), 0u) << text;
        ASSERT_TRUE(WriteFileAtomic(mark, "another" + text).ok());
      }
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

TEST_F(RecoveryTest, AJobThatDiedTwiceAtAStepWaitsAndSaysWhy) {
  std::filesystem::path state = state_;
  for (const char* life : {"first", "second"}) {
    Server server(state);
    if (std::string_view(life) == "first") server.Create("job-a", 3);
    server.runner().Hold();
    server->Start();
    server.runner().Permit(2);
    server.runner().AwaitHeld();
    state = Crash(server);
  }
  Server patient(state, absl::Hours(1));
  const Job job = patient.Get("job-a");
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_THAT(job.trouble.error, HasSubstr("the server died 2 times while this job ran, each time after step 2"));
  EXPECT_GT(job.trouble.retry_time, absl::Now());
  patient->Start();
  patient.Create("job-b", 1);
  EXPECT_EQ(patient.AwaitEnd("job-b").state, JobState::kSucceeded) << "others need not wait for it";
  EXPECT_THAT(patient.runner().runs(), testing::ElementsAre("job-b"));
}

// The database is yesterday's, or was copied without its -wal file.
TEST_F(RecoveryTest, TheWorkOfAJobThatTheDatabaseDoesNotKnowIsSetAside) {
  {
    Server server(state_);
    server.Create("known");
    std::filesystem::create_directories(server.JobDirectory("unknown") / "checkpoints/70");
    std::filesystem::create_directories(server.JobDirectory("Not An Id") / "whatever");
  }
  Server later(state_);
  EXPECT_EQ(later.Get("known").state, JobState::kQueued);
  EXPECT_FALSE(std::filesystem::exists(later.JobDirectory("unknown")));
  ASSERT_THAT(QuarantinedIn(state_ / "jobs", "unknown"), testing::SizeIs(1));
  EXPECT_TRUE(std::filesystem::exists(QuarantinedIn(state_ / "jobs", "unknown")[0] / "checkpoints/70"));
  EXPECT_THAT(QuarantinedIn(state_ / "jobs", "Not An Id"), testing::SizeIs(1));
  EXPECT_EQ(later.Metric("permafrost_job_directories_quarantined_total"), 2);
  Server again(state_);
  EXPECT_THAT(QuarantinedIn(state_ / "jobs", "unknown"), testing::SizeIs(1)) << "and stays where it is";
}

TEST_F(RecoveryTest, ANewDatabaseBesideWorkIsRefusedUnlessAFlagSaysSo) {
  for (const char* work : {"checkpoints/70", "artifacts/best.safetensors"}) {
    const std::filesystem::path state = dir_.path() / std::string(work).substr(0, 4);
    { Server server(state); }
    std::filesystem::remove(state / "permafrost.db");
    std::filesystem::create_directories(state / "jobs/lost" / work);
    for (int time = 0; time < 2; ++time) {
      const absl::Status refused = Server::TryOpen(state, /*quarantine_unknown_jobs=*/false);
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("--quarantine-unknown-jobs"));
      EXPECT_THAT(std::string(refused.message()), HasSubstr("lost"));
      EXPECT_TRUE(std::filesystem::exists(state / "jobs/lost" / work));
    }
    EXPECT_TRUE(Server::TryOpen(state, /*quarantine_unknown_jobs=*/true).ok());
    ASSERT_THAT(QuarantinedIn(state / "jobs", "lost"), testing::SizeIs(1));
    EXPECT_TRUE(std::filesystem::exists(QuarantinedIn(state / "jobs", "lost")[0] / work));
    EXPECT_TRUE(Server::TryOpen(state, /*quarantine_unknown_jobs=*/false).ok()) << "nothing is unknown any more";
  }
}

TEST_F(RecoveryTest, ARecordThatCannotBeReadCostsItsJobOnly) {
  {
    Server server(state_);
    server.Create("good", 1);
    server.Create("bad-spec", 1);
    server.Create("bad-command", 1);
  }
  std::filesystem::create_directories(state_ / "jobs/bad-spec/checkpoints/7");
  {
    SQLite::Database other((state_ / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000);
    other.exec("UPDATE jobs SET spec = '{' WHERE id = 'bad-spec'");
    other.exec("INSERT INTO cache_commands SELECT sequence, 1, '?' FROM jobs WHERE id = 'bad-command'");
  }
  Server later(state_);
  for (const char* id : {"bad-spec", "bad-command"}) {
    EXPECT_EQ(later.Get(id).state, JobState::kFailed) << id;
    EXPECT_THAT(later.Get(id).error, HasSubstr(id)) << id;
  }
  EXPECT_EQ(later.Metric("permafrost_jobs_unreadable"), 1) << "the other one is on record as failed";
  EXPECT_EQ(later.Metric("permafrost_jobs", {{"state", "failed"}}), 2);
  EXPECT_TRUE(std::filesystem::exists(later.JobDirectory("bad-spec") / "checkpoints/7")) << "its files are untouched";
  later->Start();
  EXPECT_EQ(later.AwaitEnd("good").state, JobState::kSucceeded);
  EXPECT_TRUE(later->Delete(JobId("bad-spec")).ok());
  EXPECT_EQ(later.Metric("permafrost_jobs", {{"state", "failed"}}), 1);
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
    // The drain comes while the server keeps trying to store the job's end.
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
