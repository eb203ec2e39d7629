#include "jobs/run_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/monotonic.h"
#include "base/status.h"
#include "jobs/run_counters.h"
#include "metric_values.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

using graphcache::Command;
using graphcache::CommandKind;
using testing::ElementsAre;
using testing::IsEmpty;

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
  std::unique_ptr<telemetry::JobLog> log_ = *telemetry::JobLog::Open(dir_.path() / "log", metrics_);
  std::atomic<bool> draining_{false};
  telemetry::GraphCacheMetrics cache_metrics_{
      registry_, CacheCounterRows(), {"train", "eval"}, {"new-nodes", "resume"}};
  LiveRun live_{LiveRun::Cache(),
                std::make_shared<CommandLog>(spec::PolicyOptions(), std::vector<graphcache::Command>()), Trouble(),
                absl::Hours(1), spec::JobLimits()};
  spec::TrainOptions options_;
  absl::Duration now_;
  int notices_ = 0;
  std::vector<int64_t> stored_steps_, marked_steps_;
  int wanted_stores_ = 0, stored_epochs_ = 0;
  // The time that each call may wait for the store.
  std::vector<absl::Duration> patience_;
  std::vector<int64_t> epochs_;
  std::vector<std::vector<graphcache::Command>> stored_commands_;
  absl::Status store_error_;
  std::vector<JobState> states_;
  JobRunContext context_{options_,
                         false,
                         draining_,
                         live_,
                         *log_,
                         RunMetrics{metrics_, cache_metrics_},
                         {.notify = [this] { ++notices_; },
                          .store_soon = [this] { ++wanted_stores_; },
                          .store_progress =
                              [this] {
                                patience_.push_back(Patience::Left(absl::Hours(1)));
                                stored_steps_.push_back(live_.progress().step);
                                return store_error_;
                              },
                          .store_epochs =
                              [this] {
                                patience_.push_back(Patience::Left(absl::Hours(1)));
                                ++stored_epochs_;
                                return store_error_;
                              },
                          .record_epoch = [this](const train::EpochMetrics& m) { epochs_.push_back(m.epoch); },
                          .store_commands =
                              [this](const std::vector<graphcache::Command>& commands) {
                                patience_.push_back(Patience::Left(absl::Hours(1)));
                                if (!store_error_.ok()) return store_error_;
                                stored_commands_.push_back(commands);
                                return absl::OkStatus();
                              },
                          .mark_step = [this](int64_t step) { marked_steps_.push_back(step); },
                          .advance =
                              [this](JobState state) {
                                patience_.push_back(Patience::Left(absl::Hours(1)));
                                if (store_error_.ok()) states_.push_back(state);
                                return store_error_.ok();
                              },
                          .now = [this] { return now_; }}};
};

TEST_F(RunContextTest, CancelWinsOverDrain) {
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kNone);
  draining_ = true;
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain);
  live_.RequestCancel();
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kCancel);
}

TEST_F(RunContextTest, WhatTheRunWasToldStaysThoughItsReasonIsWithdrawn) {
  live_.RequestPause();
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain);
  live_.WithdrawPause();
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain) << "it may have left an evaluation half done";
  live_.RequestCancel();
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kCancel);
}

TEST_F(RunContextTest, StopsForAJobOfHigherPriorityUnlessItIsGoneBefore) {
  live_.SetPreempted(JobId("urgent"));
  live_.SetPreempted(JobId());
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kNone);
  live_.SetPreempted(JobId("urgent"));
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain);
  EXPECT_EQ(live_.preempted_by(), JobId("urgent"));
}

TEST_F(RunContextTest, StopsBeyondALimitWhichCountsEarlierRuns) {
  live_.SetLimits({.max_runtime = absl::Hours(2)});
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kNone);
  live_.SetLimits({.deadline = absl::Now() + absl::Hours(1)});
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kNone);
  live_.SetLimits({.max_runtime = absl::Hours(1)});
  EXPECT_EQ(context_.stop_requested(), train::StopRequest::kDrain) << "it was on the device for an hour before";
}

TEST_F(RunContextTest, TellsWhenItWarmsUpAndWhenItsFirstStepIsDone) {
  train::Progress progress = Step(0);
  context_.OnProgress(progress);
  EXPECT_THAT(states_, testing::IsEmpty()) << "it still prepares";
  progress.warm_up_total = 2;
  store_error_ = absl::ResourceExhaustedError("database full");
  context_.OnProgress(progress);
  store_error_ = absl::OkStatus();
  context_.OnProgress(progress);
  EXPECT_THAT(states_, testing::IsEmpty()) << "a store that failed is left alone for a second";
  now_ += absl::Seconds(1);
  context_.OnProgress(progress);
  context_.OnProgress(progress);
  EXPECT_THAT(states_, testing::ElementsAre(JobState::kWarmingUp)) << "once";
  context_.OnProgress(Step(1));
  context_.OnProgress(Step(2));
  progress = Step(2);
  progress.warm_up_total = 1;
  context_.OnProgress(progress);
  EXPECT_THAT(states_, testing::ElementsAre(JobState::kWarmingUp, JobState::kRunning))
      << "captures between steps are none of the warm-up";
}

TEST_F(RunContextTest, EachStepIsVisibleButStoredOnceASecond) {
  std::vector<int64_t> wanted_at;
  for (int64_t step = 1; step <= 10; ++step) {
    now_ += absl::Milliseconds(300);
    context_.OnProgress(Step(step));
    EXPECT_EQ(live_.progress().step, step);
    EXPECT_EQ(marked_steps_.back(), step);
    if (static_cast<int>(wanted_at.size()) < wanted_stores_) wanted_at.push_back(step);
  }
  EXPECT_THAT(wanted_at, testing::ElementsAre(4, 8)) << "at 1.2 s and 2.4 s";
  EXPECT_THAT(stored_steps_, testing::IsEmpty()) << "by another thread than the run's";
  EXPECT_EQ(notices_, 10);
}

TEST_F(RunContextTest, EpochsAreStoredOnceASecondAndBeforeACheckpoint) {
  for (int64_t epoch = 1; epoch <= 10; ++epoch) {
    now_ += absl::Milliseconds(300);
    context_.OnEpoch({.epoch = epoch});
  }
  EXPECT_EQ(epochs_.size(), 10u);
  EXPECT_EQ(wanted_stores_, 2) << "each by itself would cost a small graph's job most of its time";
  EXPECT_EQ(stored_epochs_, 0);
  EXPECT_TRUE(context_.StoreEpochs(/*is_last=*/false).ok());
  EXPECT_EQ(stored_epochs_, 1);
  store_error_ = absl::ResourceExhaustedError("database full");
  EXPECT_TRUE(IsTransient(context_.StoreEpochs(/*is_last=*/false)));
}

TEST_F(RunContextTest, ACheckpointIsStoredAtOnce) {
  train::Progress progress = Step(2);
  context_.OnProgress(progress);
  progress.checkpoint_step = 2;
  context_.OnProgress(progress);
  context_.OnCheckpoint(2, absl::Milliseconds(5));
  EXPECT_THAT(stored_steps_, testing::ElementsAre(2));
  EXPECT_EQ(wanted_stores_, 0);
  EXPECT_EQ(live_.progress().checkpoint_step, 2);
  store_error_ = absl::UnavailableError("database is locked");
  context_.OnCheckpoint(2, absl::Milliseconds(5));
  EXPECT_EQ(wanted_stores_, 1) << "later, where it cannot be at once";
}

// The run makes each of these calls between two steps.
TEST_F(RunContextTest, NoStepWaitsForALockedStoreAndTheLastCheckpointDoes) {
  live_.commands().Append({.sequence = 1, .kind = graphcache::CommandKind::kFreeze}, nullptr);
  context_.OnProgress(Step(1));
  context_.TakeCacheCommands(0, 1);
  context_.OnCheckpoint(1, absl::Milliseconds(5));
  EXPECT_THAT(patience_, testing::ElementsAre(absl::ZeroDuration(), absl::ZeroDuration(), absl::ZeroDuration()));
  context_.OnEpoch({.epoch = 1});
  patience_.clear();
  EXPECT_TRUE(context_.StoreEpochs(/*is_last=*/false).ok());
  EXPECT_THAT(patience_, testing::ElementsAre(testing::Le(absl::Seconds(1)))) << "else the checkpoint is put off";
  EXPECT_TRUE(context_.StoreEpochs(/*is_last=*/true).ok());
  EXPECT_EQ(patience_.back(), absl::Hours(1)) << "no step comes after it";
}

TEST_F(RunContextTest, AFailedCheckpointIsShownUntilOneIsWritten) {
  context_.OnCheckpointFailed(absl::ResourceExhaustedError("disk\nfull"));
  EXPECT_EQ(live_.trouble().error, "disk full");
  EXPECT_EQ(MetricValue(registry_, "permafrost_checkpoint_failures_total"), 1);
  context_.OnCheckpoint(2, absl::Milliseconds(5));
  EXPECT_EQ(live_.trouble(), Trouble());
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

graphcache::Command Freeze(int64_t sequence, std::optional<int64_t> step = std::nullopt) {
  return {.sequence = sequence, .kind = graphcache::CommandKind::kFreeze, .step = step};
}

TEST_F(RunContextTest, TheCacheIsVisibleAtOnceWithTheEntriesToldLast) {
  graphcache::Snapshot snapshot;
  snapshot.of(Mode::kTrain).hits = 7;
  const auto entries = std::make_shared<const std::vector<graphcache::EntryInfo>>(3);
  context_.OnGraphCache(snapshot, entries);
  snapshot.of(Mode::kTrain).hits = 8;
  context_.OnGraphCache(snapshot, nullptr);
  EXPECT_EQ(live_.cache().snapshot, snapshot);
  EXPECT_EQ(live_.cache().entries, entries);
  EXPECT_EQ(notices_, 2);
  EXPECT_EQ(MetricValue(registry_, "permafrost_graph_cache_hits_total", {{"mode", "train"}}), 8);
}

TEST_F(RunContextTest, CommandsAreStampedOnDiskBeforeTheyTakeEffect) {
  EXPECT_THAT(context_.TakeCacheCommands(0, 4), testing::IsEmpty());
  live_.commands().Append(Freeze(1), nullptr);
  live_.commands().Append(Freeze(2), nullptr);
  EXPECT_THAT(context_.TakeCacheCommands(0, 5), testing::ElementsAre(Freeze(1, 5), Freeze(2, 5)));
  EXPECT_THAT(stored_commands_, testing::ElementsAre(testing::ElementsAre(Freeze(1, 5), Freeze(2, 5))));
  EXPECT_THAT(context_.TakeCacheCommands(2, 6), testing::IsEmpty());
  EXPECT_THAT(context_.TakeCacheCommands(0, 5), testing::ElementsAre(Freeze(1, 5), Freeze(2, 5)))
      << "as they were stamped";
  EXPECT_EQ(stored_commands_.size(), 1u);
}

// A command to a queued job is stamped with the step of the newest known checkpoint. The run may begin at a newer
// one.
TEST_F(RunContextTest, ACommandStampedTooEarlyIsStampedAnew) {
  live_.commands().Append(Freeze(1, 3), nullptr);
  EXPECT_THAT(context_.TakeCacheCommands(0, 6), testing::ElementsAre(Freeze(1, 6)));
  EXPECT_THAT(stored_commands_, testing::ElementsAre(testing::ElementsAre(Freeze(1, 6))));
  EXPECT_THAT(context_.TakeCacheCommands(0, 6), testing::ElementsAre(Freeze(1, 6)));
  EXPECT_EQ(stored_commands_.size(), 1u);
}

TEST_F(RunContextTest, ACommandThatCannotBeStampedWaits) {
  live_.commands().Append(Freeze(1), nullptr);
  store_error_ = absl::ResourceExhaustedError("disk full");
  EXPECT_THAT(context_.TakeCacheCommands(0, 5), testing::IsEmpty());
  store_error_ = absl::OkStatus();
  EXPECT_THAT(context_.TakeCacheCommands(0, 6), testing::IsEmpty()) << "not tried at each step";
  now_ += absl::Seconds(1);
  EXPECT_THAT(context_.TakeCacheCommands(0, 7), testing::ElementsAre(Freeze(1, 7)));
}

TEST_F(RunContextTest, WhoWaitsForACommandIsToldTheCacheThatHasIt) {
  std::vector<std::pair<int, int64_t>> told;  // (who, hits)
  for (const int who : {1, 2}) {
    live_.commands().Append(Freeze(who), [&told, who](const absl::StatusOr<graphcache::Snapshot>& snapshot) {
      told.emplace_back(who, snapshot.value().of(Mode::kTrain).hits);
    });
  }
  graphcache::Snapshot snapshot;
  context_.OnGraphCache(snapshot, nullptr);
  EXPECT_THAT(told, testing::IsEmpty());
  snapshot.command_sequence = 1;
  snapshot.of(Mode::kTrain).hits = 10;
  context_.OnGraphCache(snapshot, nullptr);
  context_.OnGraphCache(snapshot, nullptr);
  EXPECT_THAT(told, testing::ElementsAre(std::pair(1, 10)));
  snapshot.command_sequence = 2;
  snapshot.of(Mode::kTrain).hits = 20;
  context_.OnGraphCache(snapshot, nullptr);
  EXPECT_THAT(told, testing::ElementsAre(std::pair(1, 10), std::pair(2, 20)));
}

Command Clear(int64_t sequence, std::optional<int64_t> step = std::nullopt) {
  return {.sequence = sequence, .kind = CommandKind::kClear, .step = step};
}

TEST(CommandLogTest, ACommandIsDueAtItsStepOrLater) {
  const CommandLog log({}, {Clear(1, 5), Clear(2, 5), Clear(3, 9)});
  EXPECT_EQ(log.newest(), 3);
  EXPECT_THAT(log.Due(0, 4), IsEmpty());
  EXPECT_THAT(log.Due(0, 5), ElementsAre(Clear(1, 5), Clear(2, 5)));
  EXPECT_THAT(log.Due(1, 8), ElementsAre(Clear(2, 5)));
  EXPECT_THAT(log.Due(2, 8), IsEmpty());
  EXPECT_THAT(log.Due(2, 12), ElementsAre(Clear(3, 9)));
  EXPECT_THAT(log.Due(3, 12), IsEmpty());
}

TEST(CommandLogTest, OneWithoutAStepIsDueUnlessALaterOneIsAheadOfIt) {
  CommandLog log({}, {Clear(1, 9)});
  log.Append(Clear(2), nullptr);
  EXPECT_EQ(log.newest(), 2);
  EXPECT_THAT(log.Due(0, 8), IsEmpty()) << "a run that repeats lost steps must repeat the command at 9 first";
  EXPECT_THAT(log.Due(0, 9), ElementsAre(Clear(1, 9), Clear(2)));
  EXPECT_THAT(log.Due(1, 9), ElementsAre(Clear(2)));
}

TEST(CommandLogTest, AStampStays) {
  CommandLog log({}, {Clear(1, 3)});
  log.Append(Clear(2), nullptr);
  log.Append(Clear(3), nullptr);
  log.Stamp({Clear(2, 7)});
  EXPECT_THAT(log.Due(0, 7), ElementsAre(Clear(1, 3), Clear(2, 7), Clear(3)));
  EXPECT_THAT(log.Unstamped(), ElementsAre(Clear(3)));
  EXPECT_EQ(log.state().last_step, 7);
}

TEST(CommandLogTest, WhoWaitsIsGivenBackOnceAndInOrder) {
  CommandLog log({}, {});
  EXPECT_EQ(log.newest(), 0);
  std::vector<int> called;
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(
        log.Append(Clear(i), [&called, i](const absl::StatusOr<graphcache::Snapshot>&) { called.push_back(i); }));
  }
  EXPECT_THAT(log.TakeWaiting(0), IsEmpty());
  for (const auto& done : log.TakeWaiting(2)) done(graphcache::Snapshot());
  EXPECT_THAT(called, ElementsAre(1, 2));
  EXPECT_THAT(log.TakeWaiting(2), IsEmpty());
  EXPECT_EQ(log.Close().size(), 1u);
  EXPECT_FALSE(log.Append(Clear(4), nullptr));
  EXPECT_THAT(log.Close(), IsEmpty());
  EXPECT_EQ(log.state().newest, 4) << "for the next run";
  log.Open();
  EXPECT_TRUE(log.Append(Clear(5), nullptr));
}

TEST(CommandLogTest, OptionsFollowEachUpdateInOrder) {
  using spec::OnMiss;
  using spec::Policy;
  const spec::PolicyOptions spec{.policy = Policy::kAlways, .freeze_at = 3};
  CommandLog log(spec, {{.sequence = 1, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kNever}}});
  EXPECT_EQ(CommandLog(spec, {}).state().options, spec);
  EXPECT_EQ(log.state().options.policy, Policy::kNever) << "those of the store";
  log.Append(Clear(2), nullptr);
  log.Append({.sequence = 3, .kind = CommandKind::kUpdatePolicy, .update = {.on_miss = OnMiss::kEager}}, nullptr);
  log.Append({.sequence = 4, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kFreeze}}, nullptr);
  EXPECT_EQ(log.state().options,
            (spec::PolicyOptions{.policy = Policy::kFreeze, .freeze_at = 3, .on_miss = OnMiss::kEager}));
}

}  // namespace
}  // namespace permafrost::jobs
