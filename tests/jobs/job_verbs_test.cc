// Tests pause, resume, retry and update: their effects on a job and on its record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobVerbsTest : public testing::Test {
 protected:
  // Runs a job of three epochs up to step `steps`, and holds it there.
  void RunTo(int64_t steps) {
    server_.runner().Hold();
    server_->Start();
    server_.Create("job-a", 3);
    server_.runner().Permit(steps);
    server_.runner().AwaitHeld();
  }
  // Copies the state directory as SIGKILL would leave it now, and returns the copy.
  std::filesystem::path Crash(const std::string& name) {
    const std::filesystem::path copy = dir_.path() / name;
    std::filesystem::copy(server_.state_dir(), copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  void FailOnce() {
    server_.runner().SetScript(
        [this](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
          if (!std::exchange(failed_, true)) return absl::InternalError("a step went wrong");
          return server_.runner().Train(request, context);
        });
  }

  const TempDir dir_;
  Server server_{dir_.path() / "state"};
  const JobId id_{"job-a"};
  bool failed_ = false;
};

TEST_F(JobVerbsTest, AQueuedJobPausesAtOnceAndNeverRunsUntilItIsResumed) {
  server_.Create("job-a");
  server_.Create("job-b", 1, /*priority=*/-1);
  const auto paused = server_->Pause(id_);
  ASSERT_TRUE(paused.ok()) << paused.status();
  EXPECT_EQ(paused->state, JobState::kPaused);
  EXPECT_EQ(server_->Pause(id_)->state, JobState::kPaused) << "idempotent";
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "paused"}}), 1);
  server_->Start();
  server_.AwaitEnd("job-b");
  EXPECT_EQ(server_.Get("job-a").state, JobState::kPaused) << "though of higher priority";
  EXPECT_EQ(server_->CheckDatasetUnused(DatasetId("zinc")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server_->Delete(id_).code(), absl::StatusCode::kFailedPrecondition);
  const auto resumed = server_->Resume(id_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded);
  EXPECT_EQ(server_.Get("job-a").resumes, 0) << "it had not begun";
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "paused"}}), 0);
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("queued again after a pause"));
}

TEST_F(JobVerbsTest, ARunningJobPausesAtItsNextStepAndOthersRunMeanwhile) {
  RunTo(4);
  const auto pausing = server_->Pause(id_);
  ASSERT_TRUE(pausing.ok()) << pausing.status();
  EXPECT_EQ(pausing->state, JobState::kRunning);
  EXPECT_TRUE(pausing->pausing);
  EXPECT_TRUE(server_->Pause(id_)->pausing) << "idempotent";
  server_.runner().Release();
  const Job paused = server_.AwaitState("job-a", JobState::kPaused);
  EXPECT_FALSE(paused.pausing);
  EXPECT_EQ(paused.progress.step, 4);
  EXPECT_EQ(paused.progress.checkpoint_step, 4);
  EXPECT_EQ(paused.epochs.size(), 1u);
  EXPECT_EQ(paused.end_time, absl::InfinitePast());
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("paused after step 4\n"));
  server_.Create("job-b", 1);
  server_.AwaitEnd("job-b");
  EXPECT_EQ(server_.Get("job-a").state, JobState::kPaused);
  ASSERT_TRUE(server_->Resume(id_).ok());
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.resumes, 1);
  EXPECT_EQ(job.epochs.size(), 3u);
}

TEST_F(JobVerbsTest, APauseThatIsWithdrawnLeavesTheJobRunningOrQueuesIt) {
  RunTo(1);
  ASSERT_TRUE(server_->Pause(id_).ok());
  const auto resumed = server_->Resume(id_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_FALSE(resumed->pausing);
  EXPECT_EQ(server_->Resume(id_)->state, JobState::kRunning) << "idempotent";
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kSucceeded);

  // The run sees the pause before the pause is withdrawn.
  server_.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (std::exchange(failed_, true)) return server_.runner().Train(request, context);
        EXPECT_TRUE(server_->Pause(JobId("job-b")).ok());
        EXPECT_EQ(context.stop_requested(), train::StopRequest::kDrain);
        EXPECT_TRUE(server_->Resume(JobId("job-b")).ok());
        EXPECT_EQ(context.stop_requested(), train::StopRequest::kDrain) << "it was told to stop";
        return train::RunOutcome{train::RunEnd::kDrained, {}};
      });
  server_.Create("job-b");
  const Job job = server_.AwaitEnd("job-b");
  EXPECT_EQ(job.state, JobState::kSucceeded) << job.error;
  EXPECT_EQ(job.resumes, 1);
  EXPECT_THAT(server_.Log("job-b"), HasSubstr("what asked it to was withdrawn; queued again"));
}

TEST_F(JobVerbsTest, PausesSurviveTheServer) {
  RunTo(4);
  server_.Create("job-b");
  ASSERT_TRUE(server_->Pause(JobId("job-b")).ok());
  ASSERT_TRUE(server_->Pause(id_).ok());
  Server later(Crash("crashed"));
  EXPECT_EQ(later.Get("job-b").state, JobState::kPaused);
  const Job job = later.Get("job-a");
  EXPECT_EQ(job.state, JobState::kPaused) << "it was accepted before the crash";
  EXPECT_FALSE(job.pausing);
  EXPECT_EQ(later.Metric("permafrost_jobs", {{"state", "paused"}}), 2);
  later->Start();
  EXPECT_TRUE(later->Resume(id_).ok());
  EXPECT_EQ(later.AwaitEnd("job-a").epochs.size(), 3u);
  EXPECT_EQ(later.Get("job-b").state, JobState::kPaused);
}

TEST_F(JobVerbsTest, APausedJobIsCancelledAtOnceAndACancelOvertakesAPause) {
  RunTo(1);
  server_.Create("job-b");
  ASSERT_TRUE(server_->Pause(JobId("job-b")).ok());
  EXPECT_EQ(server_->Cancel(JobId("job-b"))->state, JobState::kCancelled);
  ASSERT_TRUE(server_->Pause(id_).ok());
  const auto cancelling = server_->Cancel(id_);
  ASSERT_TRUE(cancelling.ok()) << cancelling.status();
  EXPECT_EQ(cancelling->state, JobState::kCancelling);
  EXPECT_FALSE(cancelling->pausing);
  EXPECT_EQ(ReasonOf(server_->Pause(id_).status()), "JOB_CANCELLING");
  EXPECT_EQ(ReasonOf(server_->Resume(id_).status()), "JOB_CANCELLING");
  EXPECT_EQ(ReasonOf(server_->Retry(id_).status()), "JOB_CANCELLING");
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kCancelled);
}

TEST_F(JobVerbsTest, AnErrorOfTheMachineLeavesAPausingJobPaused) {
  server_.runner().SetScript([&](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> {
    EXPECT_TRUE(server_->Pause(id_).ok());
    return AsTransient(absl::ResourceExhaustedError("disk full"));
  });
  server_->Start();
  server_.Create("job-a");
  const Job job = server_.AwaitState("job-a", JobState::kPaused);
  EXPECT_EQ(job.trouble.error, "disk full");
  EXPECT_EQ(job.trouble.retry_time, absl::InfinitePast());
  EXPECT_EQ(server_.Metric("permafrost_job_retries_total"), 0);
}

TEST_F(JobVerbsTest, WhatEndedCannotBePausedOrResumed) {
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  for (const auto& refused : {server_->Pause(id_), server_->Resume(id_)}) {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused.status()), "JOB_ENDED");
  }
  EXPECT_EQ(ReasonOf(server_->Retry(id_).status()), "JOB_SUCCEEDED");
  const JobId none("job-x");
  EXPECT_TRUE(absl::IsNotFound(server_->Pause(none).status()));
  EXPECT_TRUE(absl::IsNotFound(server_->Resume(none).status()));
  EXPECT_TRUE(absl::IsNotFound(server_->Retry(none).status()));
  EXPECT_TRUE(absl::IsNotFound(server_->Update(none, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(server_->Checkpoints(none, false).status()));
}

TEST_F(JobVerbsTest, AFailedJobIsRetriedAndIsAsIfItHadNot) {
  FailOnce();
  server_->Start();
  server_.Create("job-a");
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kFailed);
  const auto retried = server_->Retry(id_);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->error, "");
  EXPECT_EQ(retried->end_time, absl::InfinitePast());
  EXPECT_TRUE(server_->Retry(id_).ok() || server_.Get("job-a").state == JobState::kSucceeded) << "idempotent";
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded) << job.error;
  EXPECT_EQ(job.resumes, 1);
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("queued again by a retry\n"));
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "failed"}}), 0);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "succeeded"}}), 1);
}

TEST_F(JobVerbsTest, ACancelledJobGoesOnFromItsCheckpoint) {
  RunTo(4);
  ASSERT_TRUE(server_->Cancel(id_).ok());
  server_.runner().Release();
  server_.AwaitEnd("job-a");
  // `later` never saw the job run.
  Server later(Crash("later"));
  ASSERT_TRUE(later->Retry(id_).ok());
  EXPECT_EQ(later.Get("job-a").state, JobState::kQueued);
  EXPECT_TRUE(later->Retry(id_).ok()) << "idempotent";
  ASSERT_TRUE(later->Pause(id_).ok());
  EXPECT_EQ(ReasonOf(later->Retry(id_).status()), "JOB_PAUSED");
  ASSERT_TRUE(later->Resume(id_).ok());
  later->Start();
  const Job job = later.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.epochs.size(), 3u) << "those before the cancel among them";
  EXPECT_EQ(later.Metric("permafrost_train_steps_total"), 5) << "steps 5 to 9";
}

TEST_F(JobVerbsTest, ARetryNeedsItsDataset) {
  server_.Create("job-a");
  ASSERT_TRUE(server_->Cancel(id_).ok());
  server_.catalog().Remove("zinc");
  EXPECT_TRUE(absl::IsNotFound(server_->Retry(id_).status()));
  EXPECT_EQ(server_.Get("job-a").state, JobState::kCancelled);
  server_.catalog().Put("zinc");
  EXPECT_TRUE(server_->Retry(id_).ok());
}

TEST_F(JobVerbsTest, AnUpdateIsOnRecordAndOrdersTheQueue) {
  server_.Create("job-a");
  server_.Create("job-b");
  JobUpdate update;
  update.priority = 7;
  update.labels = Labels{{"team", "gnn"}, {"gone", "x"}};
  update.label_changes = {{"gone", std::nullopt}, {"added", "y"}};
  update.etag = EtagOf(server_.Get("job-b"));
  const auto updated = server_->Update(JobId("job-b"), update);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->labels, (Labels{{"team", "gnn"}, {"added", "y"}}));
  EXPECT_EQ(updated->spec.priority, 7);
  const auto stale = server_->Update(JobId("job-b"), update);
  EXPECT_EQ(stale.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(stale.status()), "ETAG_MISMATCH");
  EXPECT_THAT(std::string(stale.status().message()), HasSubstr(EtagOf(*updated)));
  Server later(Crash("later"));
  EXPECT_EQ(later.Get("job-b").labels, updated->labels);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().runs(), ElementsAre("job-b", "job-a"));
}

TEST_F(JobVerbsTest, AnUpdateOfARunningOrEndedJobLeavesTheRestAlone) {
  RunTo(4);
  JobUpdate update;
  update.label_changes = {{"stage", "running"}};
  ASSERT_TRUE(server_->Update(id_, update).ok());
  EXPECT_EQ(server_.Get("job-a").progress.step, 4);
  server_.runner().Release();
  const Job ended = server_.AwaitEnd("job-a");
  EXPECT_EQ(ended.labels, (Labels{{"stage", "running"}})) << "the run's own updates of the row leave it alone";
  update.label_changes = {{"stage", "done"}};
  ASSERT_TRUE(server_->Update(id_, update).ok());
  const Job job = server_.Get("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.labels, (Labels{{"stage", "done"}}));
  EXPECT_EQ(job.epochs.size(), 3u);
}

TEST_F(JobVerbsTest, AnUpdateThatMayNotBeChangesNothing) {
  server_.Create("job-a");
  JobUpdate update;
  update.priority = 101;
  update.label_changes = {{"team", std::string(64, 'x')}};
  EXPECT_THAT(FieldsOf(server_->Update(id_, update).status()), ElementsAre("job.labels.team", "job.spec.priority"));
  EXPECT_TRUE(server_.Get("job-a").labels.empty());
}

}  // namespace
}  // namespace permafrost::jobs
