// Tests jobs that capture all executables before their first step, and jobs on composed batches: stopped anywhere,
// they end with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using spec::Shapes;
using testing::HasSubstr;

// Records the reported progress of warm-ups.
class WarmUps final : public Recorder {
 public:
  void OnProgress(const Progress& p) override {
    Recorder::OnProgress(p);
    if (p.warm_up_total > 0) told.push_back({p.warm_up_done, p.warm_up_total});
  }
  std::vector<std::pair<int64_t, int64_t>> told;
};

class LadderJobTest : public testing::Test {
 protected:
  void SetUp() override {
    set_ = ImportTinyGraphs(dir_.path(), 100);
    runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  }
  static spec::TrainOptions Options(Shapes shapes, spec::BatchingOptions batching = {}) {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2, .dropout = 0.1};
    options.batch_size = 9;  // 80 graphs: 9 steps per epoch
    options.epochs = 4;
    options.seed = 3;
    options.graph_cache = {.shapes = shapes, .rungs = 3, .audit_every = 0};
    options.batching = batching;
    return options;
  }
  RunOutcome Run(const std::string& job, const spec::TrainOptions& options, RunContext& context) {
    const auto outcome =
        runner_->Run({.options = options, .dataset = set_, .job_directory = dir_.path() / job}, context);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *outcome : RunOutcome();
  }
  static auto StopAt(int64_t step) {
    return [step](const Progress& p) { return p.step >= step ? StopRequest::kDrain : StopRequest::kNone; };
  }
  std::string Weights(const std::string& job) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / kLastWeightsFile);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(LadderJobTest, EveryStepIsAReplayOfWhatWasCapturedBeforeTheFirst) {
  for (const Shapes shapes : {Shapes::kLadder, Shapes::kDynamic}) {
    const std::string job(spec::kShapesNames.Name(shapes));
    WarmUps run;
    EXPECT_EQ(Run(job, Options(shapes), run).end, RunEnd::kSucceeded);
    EXPECT_TRUE(run.cache.frozen);
    EXPECT_EQ(run.cache.freeze_step, 0) << job;
    const int64_t executables = shapes == Shapes::kLadder ? 3 : 1;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      const graphcache::ModeStats& s = run.cache.of(mode);
      EXPECT_EQ(s.captures, executables) << job;
      EXPECT_EQ(s.entries, executables) << job;
      EXPECT_EQ(s.misses, 0) << job;
      EXPECT_EQ(s.graph_breaks, 0) << run.log;
    }
    EXPECT_EQ(run.cache.of(Mode::kTrain).hits + run.cache.of(Mode::kTrain).padded_hits, 36) << job;
    std::vector<std::pair<int64_t, int64_t>> want;
    for (int64_t done = 0; done < 2 * executables; ++done) want.emplace_back(done, 2 * executables);
    EXPECT_EQ(run.told, want) << job;
    EXPECT_EQ(run.progress.warm_up_total, 0);
    EXPECT_THAT(run.log, HasSubstr("graph cache frozen before the first step"));
    for (const graphcache::EntryInfo& entry : run.entries) {
      EXPECT_EQ(entry.replay_seconds > 0, entry.replays > 0);
      EXPECT_EQ(entry.replays, entry.hits + entry.padded_hits);
    }
  }
}

TEST_F(LadderJobTest, ALadderAgreesWithEagerSteps) {
  Recorder eager, ladder;
  spec::TrainOptions never = Options(Shapes::kAuto);
  never.graph_cache.policy = spec::Policy::kNever;
  Run("eager", never, eager);
  Run("ladder", Options(Shapes::kLadder), ladder);
  ASSERT_EQ(eager.epochs.size(), ladder.epochs.size());
  // Sums are added in another order, and Adam magnifies small differences. So only the first epoch is compared.
  EXPECT_NEAR(ladder.epochs[0].train_loss, eager.epochs[0].train_loss, 1e-3 * std::abs(eager.epochs[0].train_loss));
  EXPECT_NEAR(ladder.epochs[0].valid_metric, eager.epochs[0].valid_metric,
              1e-2 * std::abs(eager.epochs[0].valid_metric));
}

TEST_F(LadderJobTest, AStopBetweenTwoCapturesIsHeardAndCostsNothing) {
  Recorder whole;
  Run("whole", Options(Shapes::kLadder), whole);
  WarmUps stopped;
  stopped.stop = [](const Progress& p) { return p.warm_up_done >= 2 ? StopRequest::kDrain : StopRequest::kNone; };
  EXPECT_EQ(Run("job", Options(Shapes::kLadder), stopped).end, RunEnd::kDrained);
  EXPECT_EQ(stopped.progress.step, 0);
  EXPECT_EQ(stopped.cache.of(Mode::kTrain).captures, 3) << "the third was under way";
  EXPECT_FALSE(stopped.cache.frozen);
  Recorder rest;
  EXPECT_EQ(Run("job", Options(Shapes::kLadder), rest).end, RunEnd::kSucceeded);
  EXPECT_TRUE(Weights("job") == Weights("whole"));
  EXPECT_EQ(rest.cache.of(Mode::kTrain).misses, 0);
}

TEST_F(LadderJobTest, AResumeCapturesAllBeforeItsFirstStep) {
  for (const Shapes shapes : {Shapes::kLadder, Shapes::kDynamic}) {
    const std::string job(spec::kShapesNames.Name(shapes));
    Recorder whole, first, second, third;
    Run(job + "-whole", Options(shapes), whole);
    first.stop = StopAt(13);
    EXPECT_EQ(Run(job, Options(shapes), first).end, RunEnd::kDrained);
    second.stop = StopAt(14);
    EXPECT_EQ(Run(job, Options(shapes), second).end, RunEnd::kDrained);
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      EXPECT_EQ(second.cache.of(mode).awaiting_recapture, 0) << job;
      EXPECT_EQ(second.cache.of(mode).recaptures, first.cache.of(mode).entries) << job;
    }
    EXPECT_EQ(Run(job, Options(shapes), third).end, RunEnd::kSucceeded);
    EXPECT_TRUE(Weights(job) == Weights(job + "-whole")) << job;
    EXPECT_EQ(third.cache.of(Mode::kTrain).misses, 0) << job;
  }
}

TEST_F(LadderJobTest, CommandsSwitchLaddersWhereTheRunWithoutAStopDoes) {
  const std::vector<graphcache::Command> commands = {
      {.sequence = 1, .kind = graphcache::CommandKind::kUpdatePolicy, .update = {.rungs = 1}, .step = 5},
      {.sequence = 2, .kind = graphcache::CommandKind::kClear, .update = {}, .step = 11},
      {.sequence = 3,
       .kind = graphcache::CommandKind::kUpdatePolicy,
       .update = {.shapes = Shapes::kDynamic},
       .step = 17},
      {.sequence = 4,
       .kind = graphcache::CommandKind::kUpdatePolicy,
       .update = {.shapes = Shapes::kLadder, .rungs = 5},
       .step = 23},
      {.sequence = 5, .kind = graphcache::CommandKind::kUpdatePolicy, .update = {.max_executables = 4}, .step = 27},
      {.sequence = 6, .kind = graphcache::CommandKind::kUpdatePolicy, .update = {.max_executables = 6}, .step = 32}};
  Recorder whole;
  whole.commands = commands;
  Run("whole", Options(Shapes::kLadder), whole);
  EXPECT_LT(whole.cache.of(Mode::kTrain).rungs, 5) << "the limit cuts them";
  EXPECT_EQ(whole.cache.of(Mode::kTrain).misses, 0);
  EXPECT_EQ(whole.cache.freeze_step, 23);
  for (const int64_t stop : {5, 8, 11, 17, 20, 28, 30, 33}) {
    Recorder run;
    run.commands = commands;
    run.stop = StopAt(stop);
    EXPECT_EQ(Run("job", Options(Shapes::kLadder), run).end, RunEnd::kDrained);
  }
  Recorder last;
  last.commands = commands;
  Run("job", Options(Shapes::kLadder), last);
  EXPECT_TRUE(Weights("job") == Weights("whole"));
}

TEST_F(LadderJobTest, CommandsSwitchPoliciesWhereTheRunWithoutAStopDoes) {
  using graphcache::CommandKind;
  using spec::OnMiss;
  using spec::Policy;
  const std::vector<graphcache::Command> commands = {
      {.sequence = 1, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kClearPerStep}, .step = 6},
      {.sequence = 2,
       .kind = CommandKind::kUpdatePolicy,
       .update = {.policy = Policy::kFreeze, .freeze_at = 3, .on_miss = OnMiss::kTransient},
       .step = 12},
      {.sequence = 3, .kind = CommandKind::kUpdatePolicy, .update = {.on_miss = OnMiss::kPad}, .step = 22},
      {.sequence = 4, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kNever}, .step = 30}};
  spec::TrainOptions options = Options(Shapes::kExact);
  options.graph_cache.policy = Policy::kAlways;
  Recorder whole;
  whole.commands = commands;
  Run("whole", options, whole);
  EXPECT_EQ(whole.cache.command_sequence, 4);
  for (const int64_t stop : {3, 8, 14, 20, 25, 33}) {
    Recorder run;
    run.commands = commands;
    run.stop = StopAt(stop);
    EXPECT_EQ(Run("job", options, run).end, RunEnd::kDrained);
  }
  Recorder last;
  last.commands = commands;
  Run("job", options, last);
  EXPECT_TRUE(Weights("job") == Weights("whole"));
}

TEST_F(LadderJobTest, ComposedBatchesResumeToTheBit) {
  const struct {
    const char* why;
    spec::BatchingOptions batching;
    int64_t least_steps, most_steps;  // steps per epoch
  } kCases[] = {
      {"balanced", {.kind = spec::BatchingKind::kBalanced}, 9, 9},
      {"budget", {.kind = spec::BatchingKind::kBudget, .max_nodes = 50, .max_edges = 90}, 10, 16},
  };
  for (const auto& c : kCases) {
    for (const Shapes shapes : {Shapes::kLadder, Shapes::kDynamic}) {
      const std::string job = c.why + std::string(spec::kShapesNames.Name(shapes));
      const spec::TrainOptions options = Options(shapes, c.batching);
      Recorder whole;
      Run(job + "-whole", options, whole);
      EXPECT_GE(whole.progress.steps_per_epoch, c.least_steps) << job;
      EXPECT_LE(whole.progress.steps_per_epoch, c.most_steps) << job;
      EXPECT_EQ(whole.progress.step, 4 * whole.progress.steps_per_epoch) << job;
      EXPECT_EQ(whole.progress.graphs, 4 * 80) << "every graph once an epoch";
      EXPECT_EQ(whole.cache.of(Mode::kTrain).misses, 0) << job;
      for (const int64_t stop : {4, 17, 25}) {
        Recorder run;
        run.stop = StopAt(stop);
        EXPECT_EQ(Run(job, options, run).end, RunEnd::kDrained);
      }
      Recorder last;
      Run(job, options, last);
      EXPECT_TRUE(Weights(job) == Weights(job + "-whole")) << job;
    }
  }
}

TEST_F(LadderJobTest, ComposedBatchesLearnAsRandomOnesDo) {
  spec::TrainOptions random = Options(Shapes::kDynamic), balanced = random;
  random.epochs = balanced.epochs = 12;
  balanced.batching.kind = spec::BatchingKind::kBalanced;
  Recorder of_random, of_balanced;
  Run("random", random, of_random);
  Run("balanced", balanced, of_balanced);
  EXPECT_LT(of_balanced.epochs.back().train_loss, of_balanced.epochs.front().train_loss);
  EXPECT_NEAR(of_balanced.epochs.back().train_loss, of_random.epochs.back().train_loss,
              0.5 * of_random.epochs.front().train_loss);
}

TEST_F(LadderJobTest, ABudgetBelowAGraphIsRefused) {
  spec::TrainOptions options =
      Options(Shapes::kAuto, {.kind = spec::BatchingKind::kBudget, .max_nodes = 11, .max_edges = 21});
  const absl::Status status = runner_->CheckCompatible(options, set_->summary(), "spec.");
  EXPECT_THAT(
      GetViolations(status),
      testing::ElementsAre(
          FieldViolation{"spec.batching.max_nodes",
                         "11 is less than the 12 nodes of the train split's largest graph; accepted: at least 12"},
          FieldViolation{"spec.batching.max_edges",
                         "21 is less than the 22 edges of the train split's largest graph; accepted: at least "
                         "22"}));
  options.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 12};
  EXPECT_TRUE(runner_->CheckCompatible(options, set_->summary(), "spec.").ok());
}

}  // namespace
}  // namespace permafrost::train
