#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/file.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/torch_runner.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Records what a run tells; asks it to stop when `stop` says so.
class Recorder : public RunContext {
 public:
  StopRequest stop_requested() const override { return stop ? stop(progress) : StopRequest::kNone; }
  void OnProgress(const Progress& p) override { progress = p; }
  void OnEpoch(const EpochMetrics& m) override { epochs.push_back(m); }
  void OnCheckpoint(int64_t step, absl::Duration) override { checkpoints.push_back(step); }
  void Log(LogLevel, std::string_view line) override { log += std::string(line) + "\n"; }

  std::function<StopRequest(const Progress&)> stop;
  Progress progress;
  std::vector<EpochMetrics> epochs;
  std::vector<int64_t> checkpoints;
  std::string log;
};

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
    return options;
  }
  absl::StatusOr<RunOutcome> Run(const TrainOptions& options, const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .graphs = graphs_, .job_directory = dir_.path() / job}, context);
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
                                     [](const auto& a, const auto& b) { return a.valid_mae < b.valid_mae; });
  EXPECT_EQ(result.best_epoch, best->epoch);
  EXPECT_EQ(result.best_valid_mae, best->valid_mae);
  EXPECT_TRUE(std::isfinite(result.best_test_mae));
  EXPECT_EQ(result.final_test_mae, result.final_test_loss) << "the loss is L1";
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
    EXPECT_THAT(second.log, HasSubstr("resumed from the checkpoint of step " + std::to_string(stop_step)));
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
      EXPECT_EQ(epochs[e].valid_mae, undisturbed.epochs[e].valid_mae);
    }
  }
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
  told.stop = [](const Progress& p) { return p.step >= 5 ? StopRequest::kDrain : StopRequest::kNone; };
  fs::create_directories(dir_.path() / "job");
  // A file where the folder should be: every write below it fails.
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "job/checkpoints", "").ok());
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

TEST_F(RunnerTest, CheckpointsComeWhenAskedAndAtEachEpoch) {
  Recorder told;
  TrainOptions options = Options();
  options.epochs = 2;
  options.checkpoint.every_steps = 4;
  ASSERT_TRUE(Run(options, "job", told).ok());
  EXPECT_EQ(told.checkpoints, (std::vector<int64_t>{4, 8, 9, 12, 16, 18}));
  EXPECT_FALSE(fs::exists(dir_.path() / "job/checkpoints/12")) << "keep = 2";
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
      {"beyond the machine's memory", giant, many, "spec.model", "this machine has"},
      {"batches beyond the machine's memory", wide_options, wide, "spec.model", "this machine has"},
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
