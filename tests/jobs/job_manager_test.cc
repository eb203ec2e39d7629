#include "jobs/job_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobManagerTest : public testing::Test {
 protected:
  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(JobManagerTest, RunsAJobToItsEnd) {
  server_->Start();
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  ASSERT_TRUE(job.result.has_value());
  EXPECT_EQ(job.result->best_epoch, 2);
  EXPECT_EQ(job.progress.step, 6);
  EXPECT_EQ(job.progress.checkpoint_step, 6);
  ASSERT_EQ(job.epochs.size(), 2u);
  EXPECT_EQ(job.epochs[1].epoch, 2);
  EXPECT_EQ(job.resumes, 0);
  EXPECT_LE(job.create_time, job.start_time);
  EXPECT_LE(job.start_time, job.end_time);
  EXPECT_THAT(server_.Log("job-a"),
              testing::MatchesRegex("[^\n]*submitted [^\n]*\n[^\n]*started on cpu, 2 threads\n[^\n]*runner begins\n"
                                    "[^\n]*epoch 1/2 [^\n]*\n[^\n]*epoch 2/2 [^\n]*\n[^\n]*succeeded: [^\n]*\n"));
}

TEST_F(JobManagerTest, ARunLeavesItsMetrics) {
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  // Waits until the device is idle, because some metrics change after the job's end.
  server_->Drain();
  server_->Join();
  EXPECT_EQ(server_.Metric("permafrost_train_steps_total"), 6);
  EXPECT_EQ(server_.Metric("permafrost_train_graphs_total"), 60);
  EXPECT_EQ(server_.Metric("permafrost_train_padding_nodes_total"), 6);
  EXPECT_EQ(server_.Metric("permafrost_train_step_seconds", {{"phase", "forward"}}), 6);
  EXPECT_EQ(server_.Metric("permafrost_train_epoch_seconds"), 2);
  EXPECT_EQ(server_.Metric("permafrost_checkpoint_seconds"), 2);
  EXPECT_EQ(server_.Metric("permafrost_job_queue_wait_seconds"), 1);
  EXPECT_EQ(server_.Metric("permafrost_jobs_finished_total", {{"state", "succeeded"}}), 1);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "succeeded"}}), 1);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "running"}}), 0);
  EXPECT_EQ(server_.Metric("permafrost_train_epoch"), -1) << "nothing runs any more";
}

TEST_F(JobManagerTest, EveryEndHasItsSeries) {
  for (const auto& [state, name] : kJobStateNames.rows) {
    EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", std::string(name)}}), 0);
    EXPECT_EQ(server_.Metric("permafrost_jobs_finished_total", {{"state", std::string(name)}}),
              IsTerminal(state) ? 0 : -1)
        << name;
  }
}

TEST_F(JobManagerTest, TheRunnerGetsTheDatasetAndTheDirectory) {
  train::RunRequest seen;
  server_.runner().SetScript([&](const train::RunRequest& request, train::RunContext&) {
    seen = request;
    return train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()};
  });
  server_->Start();
  const Job job = server_.Create("job-a");
  server_.AwaitEnd("job-a");
  EXPECT_EQ(seen.dataset, data::OpenedDataset(server_.catalog().graphs()));
  EXPECT_EQ(seen.job_directory, server_.JobDirectory("job-a"));
  EXPECT_EQ(seen.options, job.spec.train);
}

TEST_F(JobManagerTest, ALargeGraphIsCheckedAndOpenedAsSuch) {
  data::GraphSummary summary;
  summary.nodes = 2708;
  server_.catalog().PutGraph("cora", summary);
  int64_t nodes = 0;
  server_.runner().SetCheck([&](const spec::TrainOptions&, const data::ImportedSummary& checked, std::string_view) {
    nodes = std::get<data::GraphSummary>(checked).nodes;
    return absl::OkStatus();
  });
  data::OpenedDataset opened;
  server_.runner().SetScript([&](const train::RunRequest& request, train::RunContext&) {
    opened = request.dataset;
    return train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()};
  });
  server_->Start();
  CreateRequest request = Server::Request("job-a");
  request.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  request.spec.train.dataset = DatasetId("cora");
  ASSERT_TRUE(server_->Create(request).ok());
  server_.AwaitEnd("job-a");
  EXPECT_EQ(nodes, 2708);
  EXPECT_EQ(opened, data::OpenedDataset(server_.catalog().graph()));
}

TEST_F(JobManagerTest, HigherPriorityFirstThenAge) {
  server_.Create("low", 1, -5);
  server_.Create("old", 1, 0);
  server_.Create("young", 1, 0);
  server_.Create("high", 1, 100);
  server_.Create("zero-but-youngest", 1, 0);
  server_->Start();
  server_.AwaitEnd("low");
  EXPECT_THAT(server_.runner().runs(), ElementsAre("high", "old", "young", "zero-but-youngest", "low"));
}

TEST_F(JobManagerTest, CancellingAQueuedJobIsImmediate) {
  server_.Create("job-a");
  const auto cancelled = server_->Cancel(JobId("job-a"));
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state, JobState::kCancelled);
  EXPECT_NE(cancelled->end_time, absl::InfinitePast());
  EXPECT_EQ(server_.Get("job-a").state, JobState::kCancelled);
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("cancelled after step 0"));
  EXPECT_TRUE(server_->Cancel(JobId("job-a")).ok()) << "idempotent";
  server_->Start();
  server_.Create("job-b");
  server_.AwaitEnd("job-b");
  EXPECT_THAT(server_.runner().runs(), ElementsAre("job-b"));
}

TEST_F(JobManagerTest, CancellingARunningJobStopsItAtTheNextStep) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 100);
  server_.runner().Permit(2);
  server_.runner().AwaitHeld();
  const auto cancelling = server_->Cancel(JobId("job-a"));
  ASSERT_TRUE(cancelling.ok()) << cancelling.status();
  EXPECT_EQ(cancelling->state, JobState::kCancelling);
  EXPECT_EQ(cancelling->progress.step, 2);
  EXPECT_EQ(server_->Cancel(JobId("job-a"))->state, JobState::kCancelling) << "idempotent";
  server_.runner().Release();
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_EQ(job.progress.step, 2);
  EXPECT_FALSE(job.result.has_value());
}

TEST_F(JobManagerTest, AJobThatEndedCannotBeCancelled) {
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  const auto refused = server_->Cancel(JobId("job-a"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("succeeded"));
  EXPECT_EQ(server_->Cancel(JobId("job-x")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobManagerTest, AnErrorOfTheRunFailsTheJobInOneLine) {
  server_.runner().SetScript([](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> {
    return absl::ResourceExhaustedError("out of memory\nallocating 3 GiB");
  });
  server_->Start();
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.error, "out of memory allocating 3 GiB");
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("error   failed: out of memory allocating 3 GiB\n"));
  EXPECT_EQ(server_.Metric("permafrost_jobs_finished_total", {{"state", "failed"}}), 1);
  EXPECT_EQ(server_.Metric("permafrost_job_failures_total", {{"reason", "OUT_OF_MEMORY"}}), 1);
}

TEST_F(JobManagerTest, AnErrorOfTheMachineIsTriedAgainUntilItIsOver) {
  int tries = 0;
  server_.runner().SetScript(
      [&](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        if (++tries <= 3) return AsTransient(absl::ResourceExhaustedError(absl::StrCat("disk full ", tries)));
        return server_.runner().Train(request, context);
      });
  server_->Start();
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kSucceeded) << job.error;
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(job.resumes, 3);
  EXPECT_EQ(job.trouble, Trouble()) << "got over";
  EXPECT_EQ(job.deaths, Deaths());
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("warning queued to run again: disk full 3\n"));
  EXPECT_EQ(server_.Metric("permafrost_job_retries_total"), 3);
}

class WaitingJobTest : public testing::Test {
 protected:
  // Makes a server on which the job "waits" waits for an hour.
  void SetUp() override {
    server_.runner().SetScript(
        [this](const train::RunRequest& request, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
          if (request.job_directory.filename() != "waits") return server_.runner().Train(request, context);
          return AsTransient(absl::InternalError("checkpoints: cannot open: Input/output error"));
        });
    server_->Start();
    server_.Create("waits", 2, /*priority=*/100);
    server_.Await("waits", [](const Job& job) { return job.trouble.runs == 1 && job.state == JobState::kQueued; });
  }
  const TempDir dir_;
  Server server_{dir_.path(), absl::Hours(1)};
};

TEST_F(WaitingJobTest, OthersRunAndTheReasonIsShown) {
  const Job job = server_.Get("waits");
  EXPECT_THAT(job.trouble.error, HasSubstr("Input/output error"));
  EXPECT_GT(job.trouble.retry_time, job.create_time);
  server_.Create("other");
  EXPECT_EQ(server_.AwaitEnd("other").state, JobState::kSucceeded) << "though of lower priority";
  EXPECT_EQ(server_.Get("waits").state, JobState::kQueued);
}

TEST_F(WaitingJobTest, ACancelEndsTheWait) {
  ASSERT_TRUE(server_->Cancel(JobId("waits")).ok());
  EXPECT_EQ(server_.Get("waits").state, JobState::kCancelled);
}

TEST_F(WaitingJobTest, ARetryEndsTheWait) {
  const auto retried = server_->Retry(JobId("waits"), "r1");
  ASSERT_TRUE(retried.ok()) << retried.status();
  server_.runner().AwaitRuns(2);
  const auto waits_again = [](const Job& job) {
    return job.state == JobState::kQueued && job.trouble.retry_time != absl::InfinitePast();
  };
  EXPECT_EQ(server_.Await("waits", waits_again).trouble.runs, 1) << "errors are counted from the retry on";
  EXPECT_THAT(server_.Log("waits"), HasSubstr("waits no longer: a retry was asked for\n"));
  const auto again = server_->Retry(JobId("waits"), "r1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(waits_again(*again)) << "a call that comes again is not done a second time";
}

TEST_F(WaitingJobTest, TheWaitSurvivesTheServerAndARetryEndsIt) {
  server_->Drain();
  server_->Join();
  EXPECT_EQ(server_.Get("waits").state, JobState::kQueued);
  Server later(server_.state_dir());
  EXPECT_THAT(later.Get("waits").trouble.error, HasSubstr("Input/output error"));
  EXPECT_EQ(later.Get("waits").trouble.retry_time, server_.Get("waits").trouble.retry_time);
  later->Start();
  later.Create("other");
  EXPECT_EQ(later.AwaitEnd("other").state, JobState::kSucceeded) << "though of lower priority";
  EXPECT_EQ(later.Get("waits").state, JobState::kQueued);
  ASSERT_TRUE(later->Retry(JobId("waits")).ok());
  EXPECT_EQ(later.AwaitEnd("waits").state, JobState::kSucceeded);
}

TEST_F(JobManagerTest, AnErrorOfTheMachineInACancelledRunEndsIt) {
  server_.runner().SetScript(
      [&](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        while (context.stop_requested() == train::StopRequest::kNone) absl::SleepFor(absl::Milliseconds(1));
        return AsTransient(absl::ResourceExhaustedError("disk full"));
      });
  server_->Start();
  server_.Create("job-a");
  server_.AwaitState("job-a", JobState::kPreparing);
  ASSERT_TRUE(server_->Cancel(JobId("job-a")).ok());
  EXPECT_EQ(server_.AwaitEnd("job-a").state, JobState::kCancelled);
}

TEST_F(JobManagerTest, WhatIsNewOfAJobIsGivenAlone) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 3);
  server_.runner().Permit(2 * FakeRunner::kStepsPerEpoch);
  server_.runner().AwaitHeld();
  const auto epochs_since = [&](int64_t epoch) {
    std::vector<int64_t> numbers;
    const auto job = server_->Get(JobId("job-a"), epoch);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return numbers;
    for (const train::EpochMetrics& metrics : job->epochs) numbers.push_back(metrics.epoch);
    return numbers;
  };
  EXPECT_THAT(epochs_since(0), testing::ElementsAre(1, 2));
  EXPECT_THAT(epochs_since(1), testing::ElementsAre(2));
  EXPECT_THAT(epochs_since(2), testing::IsEmpty());
  server_.runner().Release();
  server_.AwaitEnd("job-a");
  EXPECT_THAT(epochs_since(2), testing::ElementsAre(3)) << "of an ended job, too";
}

TEST_F(JobManagerTest, AVanishedDatasetFailsTheJobAndNamesItself) {
  server_.Create("job-a");
  server_.catalog().Remove("zinc");
  server_->Start();
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.error, HasSubstr("zinc"));
  EXPECT_TRUE(server_.runner().runs().empty());
}

TEST_F(JobManagerTest, AStopThatNobodyAskedForIsAFailure) {
  for (const train::RunEnd end : {train::RunEnd::kCancelled, train::RunEnd::kDrained}) {
    server_.runner().SetScript([end](const train::RunRequest&, train::RunContext&) {
      return train::RunOutcome{end, {}};
    });
    server_->Start();
    const std::string id = end == train::RunEnd::kCancelled ? "job-c" : "job-d";
    server_.Create(id);
    const Job job = server_.AwaitEnd(id);
    EXPECT_EQ(job.state, JobState::kFailed);
    EXPECT_THAT(job.error, HasSubstr("nothing asked"));
  }
}

TEST_F(JobManagerTest, ArtifactsAreThereOnceMade) {
  server_.Create("job-a");
  const auto early = server_->ArtifactPath(JobId("job-a"), Artifact::kBestWeights);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(early.status()), "ARTIFACT_NOT_READY");
  server_->Start();
  server_.AwaitEnd("job-a");
  const auto path = server_->ArtifactPath(JobId("job-a"), Artifact::kBestWeights);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(std::filesystem::is_regular_file(*path));
  EXPECT_EQ(ReasonOf(server_->ArtifactPath(JobId("job-a"), Artifact::kTestPredictions).status()), "ARTIFACT_NOT_READY");
  EXPECT_EQ(server_->ArtifactPath(JobId("job-x"), Artifact::kBestWeights).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace permafrost::jobs
