#include "jobs/run_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <atomic>
#include <memory>
#include <vector>

#include "metric_values.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

class RunContextTest : public testing::Test {
 protected:
  train::Progress Step(int64_t step) {
    train::Progress progress;
    progress.epoch = 1;
    progress.step = step;
    progress.graphs = 10 * step;
    progress.phase_seconds.forward = 0.001 * static_cast<double>(step);
    return progress;
  }

  const TempDir dir_;
  prometheus::Registry registry_;
  telemetry::JobMetrics metrics_{registry_, {}};
  std::unique_ptr<telemetry::JobLog> log_ = *telemetry::JobLog::Open(dir_.path() / "log");
  std::atomic<bool> draining_{false};
  LiveRun live_;
  train::TrainOptions options_;
  absl::Time now_ = absl::UnixEpoch();
  int notices_ = 0;
  std::vector<int64_t> stored_steps_;
  std::vector<int64_t> epochs_;
  JobRunContext context_{options_,
                         false,
                         draining_,
                         live_,
                         *log_,
                         metrics_,
                         {.notify = [this] { ++notices_; },
                          .store_progress = [this] { stored_steps_.push_back(live_.progress().step); },
                          .record_epoch = [this](const train::EpochMetrics& m) { epochs_.push_back(m.epoch); },
                          .now = [this] { return now_; }}};
};

TEST_F(RunContextTest, CancelWinsOverDrain) {
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kNone);
  draining_ = true;
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain);
  live_.RequestCancel();
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kCancel);
}

TEST_F(RunContextTest, EachStepIsVisibleButStoredOnceASecond) {
  for (int64_t step = 1; step <= 10; ++step) {
    now_ += absl::Milliseconds(300);
    context_.OnProgress(Step(step));
    EXPECT_EQ(live_.progress().step, step);
  }
  EXPECT_THAT(stored_steps_, testing::ElementsAre(4, 8)) << "at 1.2 s and 2.4 s";
  EXPECT_EQ(notices_, 10);
}

TEST_F(RunContextTest, EpochsAndCheckpointsAreStoredAtOnce) {
  context_.OnProgress(Step(1));
  context_.OnEpoch({.epoch = 1});
  EXPECT_THAT(epochs_, testing::ElementsAre(1));
  EXPECT_THAT(stored_steps_, testing::ElementsAre(1));
  context_.OnProgress(Step(2));
  context_.OnCheckpoint(2, absl::Milliseconds(5));
  EXPECT_THAT(stored_steps_, testing::ElementsAre(1, 2));
  EXPECT_EQ(live_.progress().checkpoint_step, 2);
  EXPECT_EQ(notices_, 4);
}

TEST_F(RunContextTest, FeedsTheMetrics) {
  context_.OnProgress(Step(1));
  context_.OnProgress(Step(2));
  context_.OnEpoch({.epoch = 1, .train_seconds = 2, .valid_seconds = 1});
  context_.OnCheckpoint(2, absl::Milliseconds(5));
  EXPECT_EQ(MetricValue(registry_, "permafrost_train_steps_total"), 2);
  EXPECT_EQ(MetricValue(registry_, "permafrost_train_graphs_total"), 20);
  EXPECT_EQ(MetricValue(registry_, "permafrost_train_step_seconds", {{"phase", "forward"}}), 2);
  EXPECT_EQ(MetricValue(registry_, "permafrost_train_epoch_seconds"), 1);
  EXPECT_EQ(MetricValue(registry_, "permafrost_checkpoint_seconds"), 1);
  EXPECT_EQ(MetricValue(registry_, "permafrost_train_epoch"), 1);
}

}  // namespace
}  // namespace permafrost::jobs
