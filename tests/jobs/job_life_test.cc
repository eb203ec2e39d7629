// Tests the states of a job, the reasons for them, and the effects of limits and priorities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "jobs/job.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns texts such as "queued SUBMITTED".
std::vector<std::string> ChangesOf(const Job& job) {
  std::vector<std::string> changes;
  for (const StateChange& change : job.history.changes) {
    changes.push_back(absl::StrCat(std::string(kJobStateNames.Name(change.state)), " ", change.reason));
  }
  return changes;
}

class JobLifeTest : public testing::Test {
 protected:
  // Runs a job of three epochs up to step `steps`, and holds it there.
  void RunTo(const std::string& id, int64_t steps, int32_t priority = 0) {
    server_.runner().Hold();
    server_->Start();
    server_.Create(id, 3, priority);
    server_.runner().Permit(steps);
    server_.runner().AwaitHeld();
  }
  // Copies the state directory as SIGKILL would leave it now, and returns the copy.
  std::filesystem::path Crash(const std::string& name) {
    const std::filesystem::path copy = dir_.path() / name;
    std::filesystem::copy(server_.state_dir(), copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  Job CreateLimited(const std::string& id, const spec::JobLimits& limits) {
    CreateRequest request = Server::Request(id, 3);
    request.spec.limits = limits;
    const auto job = server_->Create(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job();
  }

  const TempDir dir_;
  Server server_{dir_.path() / "state"};
};

TEST_F(JobLifeTest, AJobPreparesWarmsUpRunsAndTellsWhenAndWhy) {
  server_.runner().SetScript(
      [this](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        EXPECT_EQ(server_.Get("job-a").state, JobState::kPreparing);
        train::Progress progress;
        progress.warm_up_total = 3;
        context.OnProgress(progress);
        const Job job = server_.Get("job-a");
        EXPECT_EQ(job.state, JobState::kWarmingUp);
        EXPECT_EQ(job.progress.warm_up_total, 3);
        EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "warming-up"}}), 1);
        return server_.runner().Train(request, context);
      });
  server_->Start();
  const absl::Time before = absl::Now();
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_THAT(ChangesOf(job), ElementsAre("queued SUBMITTED", "preparing TAKEN", "warming-up CAPTURING",
                                          "running STEPPED", "succeeded FINISHED"));
  EXPECT_GE(job.history.changes.front().time, before);
  EXPECT_LE(job.history.changes.back().time, absl::Now());
  EXPECT_GT(job.device_time, absl::ZeroDuration());
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "succeeded"}}), 1);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "warming-up"}}), 0);
}

TEST_F(JobLifeTest, AJobThatIsPreparedCanBePausedAndCancelled) {
  RunTo("job-a", 0);
  EXPECT_EQ(server_.Get("job-a").state, JobState::kPreparing);
  EXPECT_EQ(server_->Delete(JobId("job-a")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server_->Retry(JobId("job-a"))->state, JobState::kPreparing) << "it runs already";
  EXPECT_TRUE(server_->Pause(JobId("job-a"))->pausing);
  EXPECT_EQ(server_->Cancel(JobId("job-a"))->state, JobState::kCancelling);
  server_.runner().Release();
  EXPECT_THAT(
      ChangesOf(server_.AwaitEnd("job-a")),
      ElementsAre("queued SUBMITTED", "preparing TAKEN", "cancelling CANCEL_REQUESTED", "cancelled CANCEL_REQUESTED"));
}

TEST_F(JobLifeTest, APauseEndsWithTheJobThatFailsBeforeIt) {
  bool failed = false;
  server_.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (std::exchange(failed, true)) return server_.runner().Train(request, context);
        EXPECT_TRUE(server_->Pause(JobId("job-a"))->pausing);
        return absl::DataLossError("a damaged row");
      });
  server_.Create("job-a");
  server_->Start();
  Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_FALSE(job.pausing);
  server_.runner().Hold();
  ASSERT_TRUE(server_->Retry(JobId("job-a")).ok());
  ASSERT_TRUE(server_->Resume(JobId("job-a")).ok()) << "there is no pause to withdraw";
  server_.runner().Release();
  job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
}

TEST_F(JobLifeTest, AJobThatErrorsOfTheMachineEndWaitsForAFreeDevice) {
  int tries = 0;
  server_.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (request.job_directory.filename() == "high" && ++tries < 3) {
          return AsTransient(absl::ResourceExhaustedError("disk full"));
        }
        return server_.runner().Train(request, context);
      });
  server_->Start();
  server_.Create("high", 1, /*priority=*/9);
  server_.runner().Hold();
  server_.Create("low", 3);
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("low").state, JobState::kSucceeded);
  EXPECT_EQ(server_.AwaitEnd("high").state, JobState::kSucceeded);
  EXPECT_EQ(server_.Metric("permafrost_job_preemptions_total"), 0);
}

TEST_F(JobLifeTest, AJobThatTheServersDeathInterruptedRecovers) {
  RunTo("job-a", 4);
  Server later(Crash("after"));
  EXPECT_EQ(later.Get("job-a").state, JobState::kQueued);
  later.runner().Hold();
  later->Start();
  later.runner().AwaitHeld();
  EXPECT_EQ(later.Get("job-a").state, JobState::kRecovering) << "until its first new step";
  later.runner().Permit(1);
  later.AwaitState("job-a", JobState::kRunning);
  later.runner().Release();
  const Job job = later.AwaitEnd("job-a");
  EXPECT_THAT(ChangesOf(job),
              ElementsAre("queued SUBMITTED", "preparing TAKEN", "running STEPPED", "queued SERVER_DIED",
                          "recovering TAKEN", "running STEPPED", "succeeded FINISHED"));
  EXPECT_FALSE(job.interrupted);
}

TEST_F(JobLifeTest, ADeathWhileItPreparesIsADeathToo) {
  RunTo("job-a", 0);
  Server later(Crash("after"));
  EXPECT_EQ(later.Get("job-a").state, JobState::kQueued);
  EXPECT_EQ(later.Get("job-a").deaths.count, 1);
  EXPECT_THAT(later.Log("job-a"), HasSubstr("interrupted"));
}

TEST_F(JobLifeTest, AJobThatTheMachineInterruptedRecovers) {
  bool failed = false;
  server_.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (!std::exchange(failed, true)) return AsTransient(absl::ResourceExhaustedError("disk full"));
        EXPECT_EQ(server_.Get("job-a").state, JobState::kRecovering);
        return server_.runner().Train(request, context);
      });
  server_->Start();
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_THAT(ChangesOf(job), ElementsAre("queued SUBMITTED", "preparing TAKEN", "queued MACHINE_ERROR",
                                          "recovering TAKEN", "running STEPPED", "succeeded FINISHED"));
  EXPECT_EQ(job.history.changes[2].message, "disk full");
}

TEST_F(JobLifeTest, ErrorsOfTheMachineFailAJobBeyondItsMaxRetries) {
  server_.runner().SetScript([](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> {
    return AsTransient(absl::ResourceExhaustedError("disk full"));
  });
  server_->Start();
  CreateRequest request = Server::Request("job-a");
  request.spec.max_retries = 2;
  ASSERT_TRUE(server_->Create(request).ok());
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(server_.runner().runs().size(), 3u);
  EXPECT_EQ(job.failure.reason, "RETRIES_EXHAUSTED");
  EXPECT_THAT(job.error, HasSubstr("disk full"));
}

TEST_F(JobLifeTest, AFailureSaysWhyToPrograms) {
  const struct {
    absl::Status error;
    std::string reason;
  } kCases[] = {
      {WithReason(absl::FailedPreconditionError("strict"), "GRAPH_CACHE_STRICT", {{"op", "aten::mm"}}),
       "GRAPH_CACHE_STRICT"},
      {absl::ResourceExhaustedError("out of memory"), "OUT_OF_MEMORY"},
      {absl::DataLossError("a block"), "DATA_DAMAGED"},
      {absl::InvalidArgumentError("no labels"), "BAD_DATA"},
      {absl::InternalError("an operator"), "RUN_FAILED"},
  };
  server_->Start();
  for (const auto& c : kCases) {
    server_.runner().SetScript(
        [&](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> { return c.error; });
    const std::string id = absl::StrCat("job-", &c - kCases);
    server_.Create(id);
    const Job job = server_.AwaitEnd(id);
    EXPECT_EQ(job.failure.code, c.error.code()) << c.reason;
    EXPECT_EQ(job.failure.reason, c.reason);
    EXPECT_EQ(job.failure.metadata, GetReason(c.error).metadata);
    EXPECT_EQ(job.history.changes.back().reason, c.reason);
    EXPECT_EQ(GetReason(ErrorOf(job)).reason, c.reason);
  }
  Server later(Crash("after"));
  EXPECT_EQ(later.Get("job-0").failure.metadata.at("op"), "aten::mm") << "after a restart, too";
  ASSERT_TRUE(server_->Retry(JobId("job-0")).ok());
  server_.AwaitEnd("job-0");
  EXPECT_EQ(server_.Get("job-1").failure.reason, "OUT_OF_MEMORY");
}

TEST_F(JobLifeTest, OnlyTheNewestChangesAreKeptAndTheRestCounted) {
  server_.Create("job-a");
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(server_->Pause(JobId("job-a")).ok());
    ASSERT_TRUE(server_->Resume(JobId("job-a")).ok());
  }
  const Job job = server_.Get("job-a");
  EXPECT_EQ(job.history.changes.size(), StateHistory::kMax);
  EXPECT_EQ(job.history.dropped, 81 - static_cast<int64_t>(StateHistory::kMax));
  EXPECT_EQ(job.history.changes.back().reason, "RESUMED");
}

TEST_F(JobLifeTest, AJobStopsAtItsMaxRuntimeAfterACheckpointAndGoesOnWithMore) {
  server_.runner().Hold();
  server_->Start();
  CreateLimited("job-a", {.max_runtime = absl::Hours(1)});
  server_.runner().Permit(1);
  server_.runner().AwaitHeld();
  // Sets the limit only after a step, because a slow machine might exceed any short limit before that.
  ASSERT_TRUE(server_->Update(JobId("job-a"), {.max_runtime = absl::Milliseconds(1)}).ok());
  while (server_.Get("job-a").device_time < absl::Milliseconds(1)) absl::SleepFor(absl::Milliseconds(1));
  server_.runner().Release();
  const Job failed = server_.AwaitEnd("job-a");
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_EQ(failed.failure.reason, "MAX_RUNTIME");
  EXPECT_EQ(failed.failure.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(failed.progress.checkpoint_step, failed.progress.step) << "nothing is lost";
  EXPECT_EQ(failed.progress.step, 1);
  const auto refused = server_->Retry(JobId("job-a"));
  EXPECT_EQ(ReasonOf(refused.status()), "MAX_RUNTIME");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("with a larger one"));
  ASSERT_TRUE(server_->Update(JobId("job-a"), {.max_runtime = absl::Hours(1)}).ok());
  ASSERT_TRUE(server_->Retry(JobId("job-a")).ok());
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_GT(job.device_time, failed.device_time) << "of all runs";
  EXPECT_EQ(job.failure, Failure());
}

TEST_F(JobLifeTest, TimeOnTheDeviceOutlivesTheServer) {
  server_.runner().Hold();
  server_->Start();
  CreateLimited("job-a", {.max_runtime = absl::Milliseconds(20)});
  server_.runner().AwaitHeld();
  while (server_.Get("job-a").device_time < absl::Milliseconds(20)) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(server_->Pause(JobId("job-a")).ok());
  // The limit takes precedence over the pause. A job that was paused here could never continue.
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("job-a").failure.reason, "MAX_RUNTIME");
  Server later(Crash("after"));
  EXPECT_GE(later.Get("job-a").device_time, absl::Milliseconds(20));
  EXPECT_EQ(ReasonOf(later->Retry(JobId("job-a")).status()), "MAX_RUNTIME");
}

TEST_F(JobLifeTest, ADeadlineEndsJobsThatWaitAndJobsThatRun) {
  RunTo("runs", 1);
  // Late enough that all jobs are recorded before it, even on a slow disk.
  const absl::Time soon = absl::Now() + absl::Seconds(10);
  ASSERT_TRUE(server_->Update(JobId("runs"), {.deadline = soon}).ok());
  CreateLimited("queued", {.deadline = soon});
  CreateLimited("paused", {.deadline = soon});
  ASSERT_TRUE(server_->Pause(JobId("paused")).ok());
  CreateLimited("later", {.deadline = soon + absl::Hours(1)});
  for (const char* id : {"queued", "paused"}) {
    const Job job = server_.AwaitEnd(id);
    EXPECT_EQ(job.failure.reason, "DEADLINE_EXCEEDED") << id;
    EXPECT_EQ(job.start_time, absl::InfinitePast()) << "it was never started";
    EXPECT_THAT(server_.Log(id), HasSubstr("failed: its deadline"));
    EXPECT_TRUE(server_->ReadLog(JobId(id), 0, 1 << 20)->complete);
  }
  EXPECT_EQ(server_.Metric("permafrost_jobs_finished_total", {{"state", "failed"}}), 2);
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("runs").failure.reason, "DEADLINE_EXCEEDED");
  EXPECT_EQ(server_.AwaitEnd("later").state, JobState::kSucceeded);
  EXPECT_EQ(ReasonOf(server_->Retry(JobId("runs")).status()), "DEADLINE_EXCEEDED");
}

TEST_F(JobLifeTest, LimitsThatAreNoneAreRefused) {
  CreateRequest request = Server::Request("job-a");
  request.spec.limits = {absl::ZeroDuration(), absl::Now() - absl::Seconds(1)};
  EXPECT_THAT(FieldsOf(server_->Create(request).status()), ElementsAre("spec.max_runtime"));
  request.spec.limits.max_runtime = absl::Seconds(1);
  EXPECT_THAT(FieldsOf(server_->Create(request).status()), ElementsAre("spec.deadline"));
  request.spec.limits.deadline = absl::InfiniteFuture();
  request.spec.max_retries = -1;
  EXPECT_THAT(FieldsOf(server_->Create(request).status()), ElementsAre("spec.max_retries"));
  server_.Create("job-b");
  EXPECT_THAT(FieldsOf(server_->Update(JobId("job-b"), {.deadline = absl::Now() - absl::Seconds(1)}).status()),
              ElementsAre("job.spec.deadline"));
  EXPECT_THAT(FieldsOf(server_->Update(JobId("job-b"), {.max_runtime = absl::ZeroDuration()}).status()),
              ElementsAre("job.spec.max_runtime"));
}

TEST_F(JobLifeTest, ARequestComesAgainAfterItsDeadline) {
  CreateRequest request = Server::Request("job-a");
  request.request_id = "one";
  request.spec.limits.deadline = absl::Now() + absl::Seconds(1);
  ASSERT_TRUE(server_->Create(request).ok());
  while (absl::Now() <= request.spec.limits.deadline) absl::SleepFor(absl::Milliseconds(1));
  const auto again = server_->Create(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->id, JobId("job-a"));
}

TEST_F(JobLifeTest, AJobOfHigherPriorityTakesTheDeviceAtTheNextStep) {
  RunTo("low", 4);
  server_.Create("equal", 1);
  server_.Create("urgent", 1, /*priority=*/5);
  server_.runner().Release();
  EXPECT_EQ(server_.AwaitEnd("urgent").state, JobState::kSucceeded);
  const Job low = server_.AwaitEnd("low");
  server_.AwaitEnd("equal");
  EXPECT_THAT(server_.runner().runs(), ElementsAre("low", "urgent", "low", "equal")) << "it keeps its age";
  EXPECT_THAT(ChangesOf(low), ElementsAre("queued SUBMITTED", "preparing TAKEN", "running STEPPED", "queued PREEMPTED",
                                          "preparing TAKEN", "running STEPPED", "succeeded FINISHED"));
  EXPECT_EQ(low.history.changes[3].message, "after step 4, by job urgent");
  EXPECT_EQ(low.progress.step, 9);
  EXPECT_EQ(low.epochs.size(), 3u);
  EXPECT_THAT(server_.Log("low"), HasSubstr("preempted after step 4, by job urgent"));
  EXPECT_EQ(server_.Metric("permafrost_job_preemptions_total"), 1);
}

TEST_F(JobLifeTest, APriorityThatChangesPreemptsToo) {
  RunTo("low", 1);
  server_.Create("other", 1);
  ASSERT_TRUE(server_->Update(JobId("low"), {.priority = -1}).ok());
  server_.runner().Release();
  server_.AwaitEnd("low");
  EXPECT_THAT(server_.runner().runs(), ElementsAre("low", "other", "low"));
}

TEST_F(JobLifeTest, AJobThatCannotRunNowPreemptsNobody) {
  Server server(dir_.path() / "patient", /*first_retry=*/absl::Hours(1));
  server.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (request.job_directory.filename() == "waits") return AsTransient(absl::ResourceExhaustedError("disk full"));
        return server.runner().Train(request, context);
      });
  server->Start();
  server.Create("waits", 1, /*priority=*/9);
  server.Await("waits", [](const Job& job) { return job.trouble.runs == 1 && job.state == JobState::kQueued; });
  server.Create("paused", 1, /*priority=*/9);
  ASSERT_TRUE(server->Pause(JobId("paused")).ok() || server.Get("paused").state == JobState::kSucceeded);
  server.runner().Hold();
  server.Create("low", 1);
  server.runner().Permit(2);
  server.runner().AwaitHeld();
  // A job of higher priority that came and went does not interrupt the run either.
  server.Create("gone", 1, /*priority=*/9);
  ASSERT_TRUE(server->Cancel(JobId("gone")).ok());
  server.runner().Release();
  const Job low = server.AwaitEnd("low");
  EXPECT_EQ(low.state, JobState::kSucceeded);
  EXPECT_EQ(low.resumes, 0);
  EXPECT_EQ(server.Metric("permafrost_job_preemptions_total"), 0);
}

TEST_F(JobLifeTest, WithoutPreemptionAJobOfHigherPriorityWaits) {
  Server server(dir_.path() / "polite", absl::Milliseconds(1), /*preempt=*/false);
  server.runner().Hold();
  server->Start();
  server.Create("low", 1);
  server.runner().AwaitHeld();
  server.Create("urgent", 1, /*priority=*/5);
  server.runner().Release();
  server.AwaitEnd("urgent");
  EXPECT_THAT(server.runner().runs(), ElementsAre("low", "urgent"));
}

}  // namespace
}  // namespace permafrost::jobs
