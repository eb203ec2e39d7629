// Tests that a run stops and leaves its files on disk, and that the next run continues from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "recorder.h"
#include "runner_fixture.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunnerCheckpointTest : public RunnerTest {};

class RunnerCheckpointShapesTest : public RunnerTest, public testing::WithParamInterface<spec::Shapes> {};

INSTANTIATE_TEST_SUITE_P(Shapes, RunnerCheckpointShapesTest,
                         testing::Values(spec::Shapes::kExact, spec::Shapes::kDynamic, spec::Shapes::kLadder),
                         [](const auto& shapes) { return std::string(spec::kShapesNames.Name(shapes.param)); });

TEST_P(RunnerCheckpointShapesTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  Recorder undisturbed;
  spec::TrainOptions options = Options();
  options.checkpoint.every_steps = 4;
  options.graph_cache.shapes = GetParam();
  ASSERT_TRUE(Run(options, "whole", undisturbed).ok());
  // The stops are before the first step, within an epoch, on a checkpoint, at the end of an epoch (where only the
  // evaluation remains), and after the last step.
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
    // A run that stops while it walks the schedule leaves no checkpoint.
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
      EXPECT_EQ(epochs[e].steps, undisturbed.epochs[e].steps) << "epoch " << e + 1 << ", stop " << stop_step;
      EXPECT_EQ(epochs[e].nodes, undisturbed.epochs[e].nodes);
      EXPECT_EQ(epochs[e].padding_nodes, undisturbed.epochs[e].padding_nodes);
    }
  }
}

// The executable that serves a batch determines the last bits of its sums. So a resumed run must have the same
// executables, and obey the same commands at the same steps.
TEST_P(RunnerCheckpointShapesTest, AStopAmidCacheCommandsEndsBitEqual) {
  using graphcache::CommandKind;
  using spec::Policy;
  spec::TrainOptions options = Options();
  options.model.dropout = 0.2;
  options.optimizer.max_grad_norm = 0.5;
  options.optimizer.schedule = spec::Schedule::kCosine;
  options.optimizer.warmup_steps = 5;
  options.graph_cache = {.policy = Policy::kFreeze, .freeze_at = 3, .shapes = GetParam()};
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
      if (mode == Mode::kEval) continue;  // an interrupted evaluation starts again
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

TEST_F(RunnerCheckpointTest, AStopUnderAnyPolicyEndsBitEqual) {
  using spec::OnMiss;
  using spec::Policy;
  using spec::Shapes;
  const spec::PolicyOptions kPolicies[] = {{Policy::kAlways},
                                           {Policy::kNever},
                                           {Policy::kClearPerStep},
                                           {Policy::kAlways, 0, OnMiss::kPad, Shapes::kDynamic},
                                           {Policy::kFreeze, 4, OnMiss::kEager, Shapes::kExact},
                                           {Policy::kFreeze, 4, OnMiss::kTransient, Shapes::kExact}};
  int n = 0;
  for (const auto& policy : kPolicies) {
    spec::TrainOptions options = Options();
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

TEST_F(RunnerCheckpointTest, AStopRightAfterAResumeLosesNothing) {
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

TEST_F(RunnerCheckpointTest, AKillBetweenCheckpointAndArtifactsIsMended) {
  Recorder whole, second;
  ASSERT_TRUE(Run(Options(), "job", whole).ok());
  const std::string last = Artifact("job", kLastWeightsFile), best = Artifact("job", kBestWeightsFile);
  // Leaves the state of a kill: the last checkpoint is complete, and the artifacts are those of an earlier one, or
  // missing.
  fs::remove(dir_.path() / "job/artifacts" / kBestWeightsFile);
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "job/artifacts" / kLastWeightsFile, "older").ok());
  ASSERT_TRUE(Run(Options(), "job", second).ok());
  EXPECT_EQ(Artifact("job", kLastWeightsFile), last);
  EXPECT_EQ(Artifact("job", kBestWeightsFile), best);
  for (const auto& entry : fs::directory_iterator(dir_.path() / "job/artifacts")) {
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path() << " is left over";
  }
}

TEST_F(RunnerCheckpointTest, AStopThatCannotWriteItsCheckpointIsStillAStop) {
  Recorder told;
  fs::create_directories(dir_.path() / "job");
  told.stop = [&](const Progress& p) {
    if (p.step < 5) return StopRequest::kNone;
    // Puts a file in the place of the folder, so that every write below it fails.
    EXPECT_TRUE(WriteFileAtomic(dir_.path() / "job/checkpoints", "").ok());
    return StopRequest::kDrain;
  };
  const auto outcome = Run(Options(), "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kDrained);
  EXPECT_THAT(told.log, HasSubstr("no checkpoint at the stop"));
}

TEST_F(RunnerCheckpointTest, CancelLeavesACheckpointAtTheStep) {
  Recorder told;
  told.stop = [](const Progress& p) { return p.step >= 5 ? StopRequest::kCancel : StopRequest::kNone; };
  const auto outcome = Run(Options(), "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kCancelled);
  EXPECT_FALSE(outcome->result.has_value());
  EXPECT_EQ(told.checkpoints, std::vector<int64_t>{5});
}

TEST_F(RunnerCheckpointTest, CheckpointsComeWhenAskedAndAtTheEnd) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.epochs = 3;
  options.checkpoint = {.every_steps = 4, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_EQ(told.checkpoints, (std::vector<int64_t>{4, 8, 12, 16, 20, 24, 27}));
  EXPECT_FALSE(fs::exists(dir_.path() / "job/checkpoints/20")) << "keep = 2";
}

TEST_F(RunnerCheckpointTest, AnEpochsEndAloneWritesNoCheckpoint) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.checkpoint = {.every_steps = 0, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_EQ(told.checkpoints, std::vector<int64_t>{36}) << "the last epoch's only";
}

// Steps take so long here that only the clock triggers checkpoints.
TEST_F(RunnerCheckpointTest, ARunSavesByTimeWithinItsFirstSecondsOfWork) {
  Recorder told;
  spec::TrainOptions options = Options();
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

TEST_F(RunnerCheckpointTest, EpochsAreStoredBeforeTheCheckpointThatHasThem) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.checkpoint = {.every_steps = 9, .every_seconds = 0};
  std::vector<size_t> epochs_then;
  told.store_epochs = [&] {
    epochs_then.push_back(told.epochs.size());
    // The second call fails. Its checkpoint must then not be written, because a resumed run would skip an epoch that
    // is stored nowhere.
    return epochs_then.size() == 2 ? AsTransient(absl::ResourceExhaustedError("database full")) : absl::OkStatus();
  };
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_THAT(epochs_then, testing::ElementsAre(1, 2, 4)) << "not tried again at once";
  EXPECT_THAT(told.checkpoints, testing::ElementsAre(9, 36));
  EXPECT_THAT(told.stored_as_last, testing::ElementsAre(false, false, true)) << "only the last may wait for the store";
  ASSERT_EQ(told.failed_checkpoints.size(), 1U);
}

TEST_F(RunnerCheckpointTest, ARunGoesOnWhereAPeriodicCheckpointCannotBeWritten) {
  Recorder whole, told;
  spec::TrainOptions options = Options();
  options.checkpoint = {.every_steps = 5, .every_seconds = 0};
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  // A file takes the folder's place until some steps later.
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

TEST_F(RunnerCheckpointTest, ARunThatCannotWriteItsLastCheckpointCanBeRunAgain) {
  Recorder whole, told, again;
  spec::TrainOptions options = Options();
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

TEST_F(RunnerCheckpointTest, CheckpointsThatCannotBeReadJustNowStopTheRunForLater) {
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

// The reserve is kept for the database, and for the last checkpoint of a run.
TEST_F(RunnerCheckpointTest, CheckpointsThatAreDueLeaveTheReserveFree) {
  const DiskReserve more_than_there_is(dir_.path(), uint64_t{1} << 60);
  runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2, .reserve = more_than_there_is});
  spec::TrainOptions options = Options();
  options.checkpoint.every_steps = 4;
  Recorder recorder;
  const auto outcome = Run(options, "full", recorder);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
  ASSERT_FALSE(recorder.failed_checkpoints.empty());
  EXPECT_TRUE(IsTransient(recorder.failed_checkpoints.front()));
  EXPECT_THAT(std::string(recorder.failed_checkpoints.front().message()), HasSubstr("the disk is nearly full"));
  runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  Recorder undisturbed;
  ASSERT_TRUE(Run(options, "free", undisturbed).ok());
  EXPECT_EQ(Artifact("full", kLastWeightsFile), Artifact("free", kLastWeightsFile));
}

}  // namespace
}  // namespace permafrost::train
