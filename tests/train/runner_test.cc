#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/torch_runner.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunnerTest : public testing::Test {
 protected:
  static constexpr int kGraphs = 100;  // 80 / 10 / 10

  void SetUp() override {
    graphs_ = ImportTinyGraphs(dir_.path(), kGraphs);
    runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  }
  static TrainOptions Options() {
    TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2};
    options.optimizer.learning_rate = 1e-2;
    options.epochs = 4;
    options.batch_size = 9;  // 9 steps an epoch, the last one partial
    options.seed = 3;
    // How fast the machine is must not decide what a test sees.
    options.checkpoint.every_seconds = 0;
    return options;
  }
  absl::StatusOr<RunOutcome> Run(const TrainOptions& options, const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graphs_, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> graphs_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(RunnerTest, LearnsAndTellsOfIt) {
  Recorder told;
  TrainOptions options = Options();
  options.epochs = 30;
  options.graph_cache.policy = graphcache::Policy::kAlways;
  const auto outcome = Run(options, "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
  ASSERT_EQ(told.epochs.size(), 30U);
  EXPECT_EQ(told.epochs[0].epoch, 1);
  EXPECT_LT(told.epochs.back().train_loss, 0.5 * told.epochs.front().train_loss);
  EXPECT_EQ(told.progress.step, 30 * 9);
  EXPECT_EQ(told.progress.graphs, 30 * 80);
  EXPECT_EQ(told.progress.nodes, 30 * graphs_->summary().splits[0].nodes);
  EXPECT_EQ(told.progress.edges, 30 * graphs_->summary().splits[0].edges);
  EXPECT_EQ(told.progress.padding_nodes, 30 * 9) << "the least padded form: one node a batch";
  EXPECT_EQ(told.progress.padding_edges, 0);
  EXPECT_GT(told.progress.phase_seconds.forward, 0);
  EXPECT_GT(told.progress.phase_seconds.backward, 0);
  EXPECT_GT(told.progress.phase_seconds.optimizer, 0);

  const RunResult& result = *outcome->result;
  const auto best = std::min_element(told.epochs.begin(), told.epochs.end(),
                                     [](const auto& a, const auto& b) { return a.valid_metric < b.valid_metric; });
  EXPECT_EQ(result.best_epoch, best->epoch);
  EXPECT_EQ(result.best_valid_metric, best->valid_metric);
  EXPECT_TRUE(std::isfinite(result.best_test_metric));
  EXPECT_EQ(result.final_test_metric, result.final_test_loss) << "the loss is L1";
  EXPECT_GT(result.num_parameters, 0);
  EXPECT_THAT(Artifact("job", kTestPredictionsFile), testing::StartsWith("graph,prediction_0\n"));
  const std::string predictions = Artifact("job", kTestPredictionsFile);
  EXPECT_EQ(std::count(predictions.begin(), predictions.end(), '\n'), 1 + 10);
}

TEST_F(RunnerTest, EqualSeedsGiveEqualBits) {
  Recorder a, b, c;
  TrainOptions other = Options();
  other.seed = 4;
  ASSERT_TRUE(Run(Options(), "a", a).ok());
  ASSERT_TRUE(Run(Options(), "b", b).ok());
  ASSERT_TRUE(Run(other, "c", c).ok());
  EXPECT_EQ(Artifact("a", kLastWeightsFile), Artifact("b", kLastWeightsFile));
  EXPECT_NE(Artifact("a", kLastWeightsFile), Artifact("c", kLastWeightsFile));
}

TEST_F(RunnerTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  Recorder undisturbed;
  TrainOptions options = Options();
  options.checkpoint.every_steps = 4;
  ASSERT_TRUE(Run(options, "whole", undisturbed).ok());
  // Before the first step; within an epoch; on a checkpoint; at the end of an epoch, so that its evaluation is what is
  // left; after the last step.
  for (const int64_t stop_step : {0, 2, 4, 9, 16, 31, 36}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Recorder first;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    const auto stopped = Run(options, job, first);
    ASSERT_TRUE(stopped.ok()) << stopped.status();
    EXPECT_EQ(stopped->end, RunEnd::kDrained);
    EXPECT_EQ(first.progress.step, stop_step);
    Recorder second;
    const auto resumed = Run(options, job, second);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    // A stop that is heard while the schedule is walked leaves nothing to resume from.
    if (stop_step > 0) {
      EXPECT_THAT(second.log, HasSubstr("resumed from the checkpoint of step " + std::to_string(stop_step)));
    }
    EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact("whole", kLastWeightsFile)) << stop_step;
    EXPECT_EQ(Artifact(job, kBestWeightsFile), Artifact("whole", kBestWeightsFile)) << stop_step;
    EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact("whole", kTestPredictionsFile)) << stop_step;
    EXPECT_EQ(second.progress.graphs, undisturbed.progress.graphs) << "counters survive the resume";
    std::vector<EpochMetrics> epochs = first.epochs;
    epochs.insert(epochs.end(), second.epochs.begin(), second.epochs.end());
    ASSERT_EQ(epochs.size(), undisturbed.epochs.size());
    for (size_t e = 0; e < epochs.size(); ++e) {
      EXPECT_EQ(epochs[e].epoch, undisturbed.epochs[e].epoch);
      EXPECT_EQ(epochs[e].train_loss, undisturbed.epochs[e].train_loss) << "epoch " << e + 1 << ", stop " << stop_step;
      EXPECT_EQ(epochs[e].valid_metric, undisturbed.epochs[e].valid_metric);
    }
  }
}

// Which executable serves a batch decides the last bits of its sums: a resumed run must have the same ones, and obey
// the same commands at the same steps.
TEST_F(RunnerTest, AStopAmidCacheCommandsEndsBitEqual) {
  using graphcache::CommandKind;
  using graphcache::Policy;
  TrainOptions options = Options();
  options.model.dropout = 0.2;
  options.optimizer.max_grad_norm = 0.5;
  options.optimizer.schedule = nn::Schedule::kCosine;
  options.optimizer.warmup_steps = 5;
  options.graph_cache = {.policy = Policy::kFreeze, .freeze_at = 3};
  options.checkpoint.every_steps = 5;
  const std::vector<graphcache::Command> commands{
      {.sequence = 1, .kind = CommandKind::kThaw, .step = 7},
      {.sequence = 2, .kind = CommandKind::kFreeze, .step = 12},
      {.sequence = 3, .kind = CommandKind::kClear, .step = 17},
      {.sequence = 4, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kNever}, .step = 21},
      {.sequence = 5,
       .kind = CommandKind::kUpdatePolicy,
       .update = {.policy = Policy::kFreeze, .freeze_at = 2},
       .step = 24},
  };
  Recorder undisturbed;
  undisturbed.commands = commands;
  ASSERT_TRUE(Run(options, "whole", undisturbed).ok());
  const graphcache::Snapshot& whole = undisturbed.cache;
  EXPECT_EQ(whole.command_sequence, 5);
  EXPECT_EQ(whole.command_step, 24);
  EXPECT_TRUE(whole.frozen);
  for (const int64_t stop_step : {4, 7, 8, 13, 17, 18, 22, 25, 36}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Recorder first, second;
    first.commands = second.commands = commands;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, job, first).ok());
    ASSERT_TRUE(Run(options, job, second).ok());
    EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact("whole", kLastWeightsFile)) << stop_step;
    EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact("whole", kTestPredictionsFile)) << stop_step;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      const graphcache::ModeStats &a = second.cache.of(mode), &b = whole.of(mode);
      EXPECT_EQ(a.entries, b.entries) << stop_step;
      EXPECT_EQ(a.captures - a.recaptures, b.captures) << stop_step;
      if (mode == Mode::kEval) continue;  // an evaluation that a stop broke off begins anew
      EXPECT_EQ(a.hits, b.hits) << stop_step;
      EXPECT_EQ(a.padded_hits, b.padded_hits) << stop_step;
      EXPECT_EQ(a.padding_nodes, b.padding_nodes) << stop_step;
    }
    std::vector<BatchShape> shapes, expected;
    for (const auto& entry : second.entries) shapes.push_back(entry.shape);
    for (const auto& entry : undisturbed.entries) expected.push_back(entry.shape);
    EXPECT_EQ(shapes, expected) << stop_step;
  }
}

TEST_F(RunnerTest, AStopUnderAnyPolicyEndsBitEqual) {
  using graphcache::OnMiss;
  using graphcache::Policy;
  const graphcache::PolicyOptions kPolicies[] = {{Policy::kAlways},
                                                 {Policy::kNever},
                                                 {Policy::kClearPerStep},
                                                 {Policy::kFreeze, 4, OnMiss::kEager},
                                                 {Policy::kFreeze, 4, OnMiss::kTransient}};
  int n = 0;
  for (const auto& policy : kPolicies) {
    TrainOptions options = Options();
    options.graph_cache = policy;
    options.epochs = 2;
    const std::string whole = "whole-" + std::to_string(n), stopped = "stopped-" + std::to_string(n++);
    Recorder undisturbed, first, second;
    ASSERT_TRUE(Run(options, whole, undisturbed).ok());
    first.stop = [](const Progress& p) { return p.step >= 7 ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, stopped, first).ok());
    ASSERT_TRUE(Run(options, stopped, second).ok());
    EXPECT_EQ(Artifact(stopped, kLastWeightsFile), Artifact(whole, kLastWeightsFile)) << n;
    EXPECT_EQ(second.cache.of(Mode::kTrain).hits, undisturbed.cache.of(Mode::kTrain).hits) << n;
  }
}

TEST_F(RunnerTest, AStopRightAfterAResumeLosesNothing) {
  Recorder first, stopped, last, undisturbed;
  ASSERT_TRUE(Run(Options(), "whole", undisturbed).ok());
  first.stop = [](const Progress& p) { return p.step >= 12 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run(Options(), "job", first).ok());
  stopped.stop = [](const Progress&) { return StopRequest::kCancel; };
  const auto outcome = Run(Options(), "job", stopped);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kCancelled);
  EXPECT_THAT(stopped.checkpoints, testing::IsEmpty());
  ASSERT_TRUE(Run(Options(), "job", last).ok());
  EXPECT_EQ(Artifact("job", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
}

TEST_F(RunnerTest, EveryStepIsCountedOnce) {
  using graphcache::OnMiss;
  using graphcache::Policy;
  const graphcache::PolicyOptions kPolicies[] = {{Policy::kAlways},
                                                 {Policy::kNever},
                                                 {Policy::kClearPerStep},
                                                 {Policy::kFreeze, 4, OnMiss::kPad},
                                                 {Policy::kFreeze, 4, OnMiss::kEager},
                                                 {Policy::kFreeze, 4, OnMiss::kTransient}};
  std::vector<double> losses;
  for (const auto& policy : kPolicies) {
    Recorder told;
    TrainOptions options = Options();
    options.graph_cache = policy;
    const std::string job = std::string(graphcache::kPolicyNames.Name(policy.policy)) + "-" +
                            std::string(graphcache::kOnMissNames.Name(policy.on_miss));
    ASSERT_TRUE(Run(options, job, told).ok()) << job;
    const graphcache::ModeStats &train = told.cache.of(Mode::kTrain), &eval = told.cache.of(Mode::kEval);
    EXPECT_EQ(train.hits + train.padded_hits + train.misses, 4 * 9) << job;
    EXPECT_EQ(eval.hits + eval.padded_hits + eval.misses, (4 + 2) * 2) << job << ": 10 graphs a split";
    EXPECT_EQ(train.nodes, told.progress.nodes) << job;
    EXPECT_EQ(train.padding_nodes, told.progress.padding_nodes) << job;
    EXPECT_EQ(train.graph_breaks + eval.graph_breaks, 0) << job;
    EXPECT_EQ(static_cast<int64_t>(told.entries.size()), train.entries + eval.entries) << job;
    if (policy.policy == Policy::kNever) {
      EXPECT_EQ(train.eager_steps, 36);
      EXPECT_EQ(train.captures, 0);
    }
    if (policy.policy == Policy::kClearPerStep) {
      EXPECT_EQ(train.captures, 36);
    }
    if (policy.policy == Policy::kFreeze) {
      EXPECT_TRUE(told.cache.frozen) << job;
      EXPECT_LE(train.entries, 5) << job;
    }
    if (policy.policy == Policy::kFreeze && policy.on_miss == OnMiss::kPad) {
      EXPECT_EQ(train.eager_steps + train.transient_steps + train.frozen_captures, 0);
    }
    losses.push_back(told.epochs.back().train_loss);
  }
  // always, never and clear-per-step run the very same sums.
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  for (const double loss : losses) EXPECT_NEAR(loss, losses[0], 1e-3 * std::abs(losses[0]));
}

TEST_F(RunnerTest, RejectFailsTheJobAtTheFirstMiss) {
  Recorder told;
  TrainOptions options = Options();
  options.graph_cache = {graphcache::Policy::kFreeze, 2, graphcache::OnMiss::kReject};
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetReason(outcome.status()).reason, "GRAPH_CACHE_MISS");
}

TEST_F(RunnerTest, AKillBetweenCheckpointAndArtifactsIsMended) {
  Recorder whole, second;
  ASSERT_TRUE(Run(Options(), "job", whole).ok());
  const std::string last = Artifact("job", kLastWeightsFile), best = Artifact("job", kBestWeightsFile);
  // What the kill leaves: the last checkpoint is complete, the artifacts are those of an earlier one, or none.
  fs::remove(dir_.path() / "job/artifacts" / kBestWeightsFile);
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "job/artifacts" / kLastWeightsFile, "older").ok());
  ASSERT_TRUE(Run(Options(), "job", second).ok());
  EXPECT_EQ(Artifact("job", kLastWeightsFile), last);
  EXPECT_EQ(Artifact("job", kBestWeightsFile), best);
  for (const auto& entry : fs::directory_iterator(dir_.path() / "job/artifacts")) {
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path() << " is left over";
  }
}

TEST_F(RunnerTest, AStopThatCannotWriteItsCheckpointIsStillAStop) {
  Recorder told;
  fs::create_directories(dir_.path() / "job");
  told.stop = [&](const Progress& p) {
    if (p.step < 5) return StopRequest::kNone;
    // A file where the folder should be: every write below it fails.
    EXPECT_TRUE(WriteFileAtomic(dir_.path() / "job/checkpoints", "").ok());
    return StopRequest::kDrain;
  };
  const auto outcome = Run(Options(), "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kDrained);
  EXPECT_THAT(told.log, HasSubstr("no checkpoint at the stop"));
}

TEST_F(RunnerTest, CancelLeavesACheckpointAtTheStep) {
  Recorder told;
  told.stop = [](const Progress& p) { return p.step >= 5 ? StopRequest::kCancel : StopRequest::kNone; };
  const auto outcome = Run(Options(), "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kCancelled);
  EXPECT_FALSE(outcome->result.has_value());
  EXPECT_EQ(told.checkpoints, std::vector<int64_t>{5});
}

TEST_F(RunnerTest, CheckpointsComeWhenAskedAndAtTheEnd) {
  Recorder told;
  TrainOptions options = Options();
  options.epochs = 3;
  options.checkpoint = {.every_steps = 4, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_EQ(told.checkpoints, (std::vector<int64_t>{4, 8, 12, 16, 20, 24, 27}));
  EXPECT_FALSE(fs::exists(dir_.path() / "job/checkpoints/20")) << "keep = 2";
}

TEST_F(RunnerTest, AnEpochsEndAloneWritesNoCheckpoint) {
  Recorder told;
  TrainOptions options = Options();
  options.checkpoint = {.every_steps = 0, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_EQ(told.checkpoints, std::vector<int64_t>{36}) << "the last epoch's only";
}

// A step takes so long here that the clock alone decides.
TEST_F(RunnerTest, ARunSavesByTimeWithinItsFirstSecondsOfWork) {
  Recorder told;
  TrainOptions options = Options();
  told.stop = [](const Progress& p) {
    absl::SleepFor(absl::Milliseconds(p.step > 0 ? 400 : 0));
    return StopRequest::kNone;
  };
  options.epochs = 1;
  options.checkpoint.every_seconds = 60;
  ASSERT_TRUE(Run(options, "job", told).ok());
  ASSERT_GE(told.checkpoints.size(), 2U);
  EXPECT_LE(told.checkpoints.front(), 4) << "after a second, not a minute";
}

TEST_F(RunnerTest, EpochsAreStoredBeforeTheCheckpointThatHasThem) {
  Recorder told;
  TrainOptions options = Options();
  options.checkpoint = {.every_steps = 9, .every_seconds = 0};
  std::vector<size_t> epochs_then;
  told.store_epochs = [&] {
    epochs_then.push_back(told.epochs.size());
    // The second is refused: its checkpoint would let a resumed run pass an epoch over that nobody has.
    return epochs_then.size() == 2 ? AsTransient(absl::ResourceExhaustedError("database full")) : absl::OkStatus();
  };
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_THAT(epochs_then, testing::ElementsAre(1, 2, 4)) << "not tried again at once";
  EXPECT_THAT(told.checkpoints, testing::ElementsAre(9, 36));
  ASSERT_EQ(told.failed_checkpoints.size(), 1U);
}

TEST_F(RunnerTest, ARunGoesOnWhereAPeriodicCheckpointCannotBeWritten) {
  Recorder whole, told;
  TrainOptions options = Options();
  options.checkpoint = {.every_steps = 5, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  // A file where the folder should be, until some steps later.
  fs::create_directories(dir_.path() / "job");
  const fs::path obstacle = dir_.path() / "job/checkpoints";
  told.stop = [&](const Progress& p) {
    if (p.step == 4) {
      EXPECT_TRUE(WriteFileAtomic(obstacle, "").ok());
    }
    if (p.step == 20) fs::remove(obstacle);
    return StopRequest::kNone;
  };
  const auto outcome = Run(options, "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_FALSE(told.failed_checkpoints.empty());
  EXPECT_TRUE(IsTransient(told.failed_checkpoints[0])) << told.failed_checkpoints[0];
  EXPECT_THAT(std::string(told.failed_checkpoints[0].message()), HasSubstr("job/checkpoints"));
  EXPECT_EQ(told.checkpoints.back(), 36);
  EXPECT_EQ(Artifact("job", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
}

TEST_F(RunnerTest, ARunThatCannotWriteItsLastCheckpointCanBeRunAgain) {
  Recorder whole, told, again;
  TrainOptions options = Options();
  options.checkpoint = {.every_steps = 20, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  const fs::path artifacts = dir_.path() / "job/artifacts", away = dir_.path() / "away";
  told.stop = [&](const Progress& p) {
    if (p.step == 30 && !fs::exists(away)) {
      fs::rename(artifacts, away);
      EXPECT_TRUE(WriteFileAtomic(artifacts, "").ok());
    }
    return StopRequest::kNone;
  };
  const auto failed = Run(options, "job", told);
  EXPECT_TRUE(IsTransient(failed.status())) << failed.status();
  fs::remove(artifacts);
  ASSERT_TRUE(Run(options, "job", again).ok());
  EXPECT_EQ(Artifact("job", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
  EXPECT_EQ(Artifact("job", kTestPredictionsFile), Artifact("whole", kTestPredictionsFile));
}

TEST_F(RunnerTest, CheckpointsThatCannotBeReadJustNowStopTheRunForLater) {
  Recorder first, second, third;
  first.stop = [](const Progress& p) { return p.step >= 5 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run(Options(), "job", first).ok());
  const fs::path checkpoints = dir_.path() / "job/checkpoints", away = dir_.path() / "away";
  fs::rename(checkpoints, away);
  fs::create_symlink(checkpoints, checkpoints);
  const auto outcome = Run(Options(), "job", second);
  EXPECT_TRUE(IsTransient(outcome.status())) << outcome.status();
  EXPECT_EQ(second.progress.step, 0) << "no new run was begun";
  fs::remove(checkpoints);
  fs::rename(away, checkpoints);
  ASSERT_TRUE(Run(Options(), "job", third).ok());
  EXPECT_THAT(third.log, HasSubstr("resumed from the checkpoint of step 5"));
}

TEST_F(RunnerTest, StorageIsConstantToTheByteAfterAFreeze) {
  Recorder told;
  TrainOptions options = Options();
  options.epochs = 6;
  options.graph_cache = {.policy = graphcache::Policy::kFreeze, .freeze_at = 3};
  std::map<int64_t, int64_t> bytes;  // by step, from the freeze on: within epochs and over their evaluations
  told.stop = [&](const Progress& p) {
    if (told.cache.frozen && p.step < int64_t{6} * 9) bytes[p.step] = runner_->storage_use().bytes;
    return StopRequest::kNone;
  };
  ASSERT_TRUE(Run(options, "job", told).ok());
  ASSERT_LT(bytes.begin()->first, 9) << "the freeze is in the first epoch";
  for (const auto& [step, count] : bytes) EXPECT_EQ(count, bytes.begin()->second) << step;
}

TEST_F(RunnerTest, DivergenceFailsWithTheStepAndTheRate) {
  Recorder told;
  TrainOptions options = Options();
  options.loss = nn::Loss::kMse;
  options.optimizer.learning_rate = 1e30;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("training diverged"));
}

TEST_F(RunnerTest, OtherThreadCountIsSaidAloud) {
  Recorder first, second;
  first.stop = [](const Progress& p) { return p.step >= 3 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run(Options(), "job", first).ok());
  runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 1});
  ASSERT_TRUE(Run(Options(), "job", second).ok());
  EXPECT_THAT(second.log, HasSubstr("began with 2 threads and goes on with 1"));
}

TEST_F(RunnerTest, AnAbsentDeviceIsNamed) {
  const auto runner = MakeTorchRunner({.device = DeviceKind::kMps});
  if (runner.ok()) GTEST_SKIP() << "this machine has MPS";
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr("device: mps is not present here"));
}

TEST_F(RunnerTest, WhatASetCannotServeIsRefusedBeforeTheRun) {
  const data::GraphSetSummary fine = graphs_->summary();
  const auto with = [&](const auto& change) {
    data::GraphSetSummary s = fine;
    change(s);
    return s;
  };
  TrainOptions giant = Options();
  giant.model = {.hidden_channels = 4096, .num_layers = 64};
  giant.batch_size = 65536;
  data::GraphSetSummary many = fine;
  many.splits[0].graphs = 1'000'000;
  many.splits[0].mean_nodes = 1000;
  // A small model on wide float columns: the batches on the host are what does not fit.
  TrainOptions wide_options = Options();
  wide_options.model = {.hidden_channels = 1, .num_layers = 1};
  wide_options.batch_size = 65536;
  data::GraphSetSummary wide = many;
  wide.node_features = {.type = data::DataType::kFloat32, .width = 100'000, .min = {}, .max = {}};
  const struct {
    const char* why;
    TrainOptions options;
    data::GraphSetSummary summary;
    const char* field;
    const char* says;
  } kCases[] = {
      {"no training graphs", Options(), with([](auto& s) { s.splits[0] = {}; }), "spec.dataset",
       "train split is empty"},
      {"no labels", Options(), with([](auto& s) { s.num_targets = 0; }), "spec.dataset", "no labels"},
      {"negative categories", Options(), with([](auto& s) { s.node_features.min = {-2}; }), "spec.dataset",
       "node feature column 0 has integers -2..2"},
      {"ids as categories", Options(), with([](auto& s) { s.edge_features.max = {5e6}; }), "spec.dataset",
       "edge feature column 0"},
      {"beyond the machine's memory", giant, many, "spec.model", "this process may use"},
      {"batches beyond the machine's memory", wide_options, wide, "spec.model", "this process may use"},
  };
  EXPECT_TRUE(runner_->CheckCompatible(Options(), fine, "spec.").ok());
  for (const auto& c : kCases) {
    const absl::Status status = runner_->CheckCompatible(c.options, c.summary, "spec.");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_EQ(GetViolations(status).size(), 1U) << c.why;
    EXPECT_EQ(GetViolations(status)[0].field, c.field) << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr(c.says)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::train
