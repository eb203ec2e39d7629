// Tests a device that fails for the rest of the process: the job waits for the next process, and no other job begins.
#include "base/device.h"
#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>

#include "jobs/job_files.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::Status Fault() {
  return AsDeviceFault(absl::UnavailableError("the device has failed: CUDA error: an illegal memory access"));
}

// Returns a script that fails after `steps` steps, none of which is in a checkpoint.
FakeRunner::Script FailAfter(int64_t steps) {
  return [steps](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
    train::Progress progress;
    progress.steps_per_epoch = 10;
    for (progress.step = 1; progress.step <= steps; ++progress.step) context.OnProgress(progress);
    return Fault();
  };
}

class DeviceFaultJobsTest : public testing::Test {
 protected:
  const TempDir dir_;
  const std::filesystem::path state_ = dir_.path() / "state";
};

TEST_F(DeviceFaultJobsTest, ItsJobIsQueuedAgainAndNoOtherIsTaken) {
  std::string told;
  {
    Server server(state_, {.on_device_fault = [&](const absl::Status& fault) { told = std::string(fault.message()); }});
    server.Create("first");
    server.Create("second");
    server.runner().SetScript(FailAfter(2));
    server->Start();
    server->Join();  // returns because the fault drains the server
    EXPECT_THAT(told, HasSubstr("illegal memory access"));
    EXPECT_TRUE(server->draining());
    EXPECT_THAT(server.runner().runs(), ElementsAre("first"));
    const Job first = server.Get("first");
    EXPECT_EQ(first.state, JobState::kQueued);
    EXPECT_EQ(first.history.changes.back().reason, why::kDeviceFault);
    EXPECT_THAT(first.history.changes.back().message, HasSubstr("illegal memory access"));
    EXPECT_THAT(first.trouble.error, HasSubstr("illegal memory access"));
    EXPECT_EQ(first.deaths.count, 1);
    EXPECT_EQ(first.deaths.step, 2);
    EXPECT_EQ(server.Get("second").state, JobState::kQueued);
    EXPECT_EQ(server.Get("second").deaths.count, 0);
    EXPECT_EQ(server->Create(Server::Request("third")).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(server.Log("first"), HasSubstr("queued to run again: the device has failed"));
  }
  Server next(state_);
  next->Start();
  EXPECT_EQ(next.AwaitEnd("first").state, JobState::kSucceeded);
  EXPECT_EQ(next.AwaitEnd("second").state, JobState::kSucceeded);
}

TEST_F(DeviceFaultJobsTest, AFifthOneWithoutACheckpointBetweenThemFailsTheJob) {
  for (int i = 1; i <= 5; ++i) {
    Server server(state_);
    if (i == 1) server.Create("bad", 2, /*priority=*/1);
    if (i == 1) server.Create("good");
    // A device reports a fault some steps after its cause, so each run fails at another step.
    server.runner().SetScript([&, i](const train::RunRequest& request, train::RunContext& context) {
      return request.job_directory.filename() == "bad" ? FailAfter(10 + i)(request, context)
                                                       : server.runner().Train(request, context);
    });
    server->Start();
    server->Join();
    const Job bad = server.Get("bad");
    EXPECT_EQ(bad.deaths.count, i);
    EXPECT_EQ(bad.state, i < 5 ? JobState::kQueued : JobState::kFailed);
    if (i < 5) continue;
    EXPECT_EQ(bad.failure.reason, "DEVICE_FAILED_AGAIN");
    EXPECT_THAT(bad.error, HasSubstr("failed 5 times while this job ran, the last time after step 15"));
    EXPECT_EQ(server.Metric("permafrost_job_failures_total", {{"reason", "DEVICE_FAILED_AGAIN"}}), 1);
  }
  Server last(state_);
  last->Start();
  EXPECT_EQ(last.AwaitEnd("good").state, JobState::kSucceeded);
}

TEST_F(DeviceFaultJobsTest, CancelledAndPausedJobsGoWhereTheyWereTold) {
  for (const bool cancel : {true, false}) {
    const std::string id = cancel ? "cancelled" : "paused";
    Server server(state_);
    server.Create(id);
    server.runner().SetScript([&](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> {
      const auto told = cancel ? server->Cancel(JobId(id)) : server->Pause(JobId(id));
      EXPECT_TRUE(told.ok()) << told.status();
      return Fault();
    });
    server->Start();
    server->Join();
    EXPECT_EQ(server.Get(id).state, cancel ? JobState::kCancelled : JobState::kPaused);
  }
}

TEST_F(DeviceFaultJobsTest, AnEvaluationOnTheDeviceThatMeetsItDrainsToo) {
  std::atomic<bool> told = false;
  Server server(state_, {.on_device_fault = [&](const absl::Status&) { told = true; }});
  server.runner().SetDevice(DeviceKind::kCuda);
  server->Start();
  server.Create("done", 1);
  server.AwaitEnd("done");
  std::filesystem::create_directories(server.JobDirectory("done") / "artifacts");
  std::ofstream(server.JobDirectory("done") / "artifacts" / train::kBestWeightsFile) << "weights";
  server.runner().SetEvaluateError(Fault());
  // Retries until the device thread waits for a job.
  absl::Status status;
  do {
    status = server->Evaluate({.job = JobId("done")}, [](int64_t, int64_t) { return true; }).status();
  } while (!IsDeviceFault(status) && absl::IsUnavailable(status));
  EXPECT_TRUE(IsDeviceFault(status)) << status;
  server->Join();
  EXPECT_TRUE(told);
  EXPECT_TRUE(server->draining());
}

TEST(CountDeviceFaultTest, ByStepOrWithoutACheckpoint) {
  const RunMark::Content at_7{.boot_id = "boot", .step = 7};
  const Deaths none, first = CountDeviceFault(none, at_7, "boot", 4);
  EXPECT_EQ(first, (Deaths{1, 7, 4}));
  EXPECT_EQ(CountDeviceFault(first, RunMark::Content{"boot", 9}, "boot", 4).count, 2) << "no checkpoint since";
  EXPECT_EQ(CountDeviceFault(first, at_7, "boot", 5).count, 2) << "the same step";
  EXPECT_EQ(CountDeviceFault(first, RunMark::Content{"boot", 9}, "boot", 5), (Deaths{1, 9, 5})) << "it got further";
  EXPECT_EQ(CountDeviceFault(first, at_7, "other", 4), first) << "booted anew since";
  EXPECT_EQ(CountDeviceFault(first, std::nullopt, "boot", 4), first);
}

}  // namespace
}  // namespace permafrost::jobs
