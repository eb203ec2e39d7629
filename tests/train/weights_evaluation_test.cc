// Tests one pass of weights over rows of a dataset: it equals the run's own evaluation, on any data that the model
// accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/resources.h"
#include "device/backend.h"
#include "evaluation_fixture.h"
#include "recorder.h"
#include "train/loop/evaluation.h"
#include "train/planning/batch_schedule.h"

namespace permafrost::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(SetEvaluationTest, OfTheTestSplitIsWhatTheRunReported) {
  for (const int64_t folds : {0, 5}) {
    spec::TrainOptions options = Options();
    options.metrics = {spec::Metric::kMae, spec::Metric::kRmse};
    options.cross_validation = {.folds = folds, .fold = folds / 2, .seed = 4};
    const std::string job = "job-" + std::to_string(folds);
    Recorder context;
    const auto run = Run(options, job, context);
    ASSERT_TRUE(run.ok() && run->result) << run.status();
    const auto pass = Evaluate(PassOf(options, graphs_, Artifact(job, kBestWeightsFile)));
    ASSERT_TRUE(pass.ok()) << pass.status();
    EXPECT_EQ(pass->loss, run->result->best_test_loss);
    EXPECT_EQ(pass->metrics, run->result->best_test_metrics);
    EXPECT_EQ(pass->predictions, Artifact(job, kTestPredictionsFile));
    EXPECT_EQ(pass->rows, folds == 0 ? 10 : 20);
  }
}

// If the last weights are also the best, one pass tests them, and its result counts for both.
TEST_F(SetEvaluationTest, TheLastWeightsAreTestedOnceWhereTheyAreTheBest) {
  for (const double decay : {0.0, 0.9}) {
    bool once = false, twice = false;
    for (int64_t epochs = 1; epochs <= 40 && !(once && twice); ++epochs) {
      SCOPED_TRACE(testing::Message() << epochs << " epochs, ema_decay " << decay);
      spec::TrainOptions options = Options();
      options.epochs = epochs;
      options.optimizer.learning_rate = 0.05;
      options.optimizer.ema_decay = decay;
      const std::string job = "job-" + std::to_string(epochs) + "-" + std::to_string(decay);
      Recorder told;
      const auto run = Run(options, job, told);
      ASSERT_TRUE(run.ok() && run->result) << run.status();
      const bool last_is_best = run->result->best_epoch == epochs;
      (last_is_best ? once : twice) = true;
      const graphcache::ModeStats& eval = told.cache.of(Mode::kEval);
      EXPECT_EQ(eval.hits + eval.padded_hits + eval.misses, (epochs + (last_is_best ? 1 : 2)) * 2);
      EXPECT_EQ(run->result->final_test_loss == run->result->best_test_loss, last_is_best);
      for (const auto& [file, loss] : {std::pair(kBestWeightsFile, run->result->best_test_loss),
                                       std::pair(kLastWeightsFile, run->result->final_test_loss)}) {
        const auto pass = Evaluate(PassOf(options, graphs_, Artifact(job, file)));
        ASSERT_TRUE(pass.ok()) << pass.status();
        EXPECT_EQ(pass->loss, loss) << file;
        if (file == kBestWeightsFile) {
          EXPECT_EQ(pass->predictions, Artifact(job, kTestPredictionsFile));
        }
      }
    }
    EXPECT_TRUE(once && twice);
  }
}

TEST_F(SetEvaluationTest, AllRowsAreThoseOfTheSplitsTogether) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kLastWeightsFile);
  std::string of_splits;
  int64_t rows = 0;
  for (const EvaluatedRows split : {EvaluatedRows::kTrain, EvaluatedRows::kValid, EvaluatedRows::kTest}) {
    const auto pass = Evaluate(PassOf(Options(), graphs_, weights, split));
    ASSERT_TRUE(pass.ok()) << pass.status();
    of_splits += pass->predictions;
    rows += pass->rows;
  }
  const auto all = Evaluate(PassOf(Options(), graphs_, weights, EvaluatedRows::kAll));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->rows, kGraphs);
  EXPECT_EQ(rows, kGraphs);
  EXPECT_EQ(std::ranges::count(all->predictions, '\n'), kGraphs + 1) << "a line a graph, and the header";
  // The batches differ, and so do the last bits. Each graph occurs once, whatever its split.
  for (int graph = 0; graph < kGraphs; ++graph) {
    const std::string begin = "\n" + std::to_string(graph) + ",";
    EXPECT_THAT(all->predictions, HasSubstr(begin));
    EXPECT_THAT(of_splits, HasSubstr(begin));
  }
}

// With only a budget, batch_size has its largest value.
TEST_F(SetEvaluationTest, ABudgetsBatchesHaveAsManyGraphsAsItHolds) {
  spec::TrainOptions options = Options();
  options.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 60, .max_edges = 0};
  options.batch_size = 65'536;
  const spec::TrainOptions made = OptionsOfEvaluation(options, graphs_->summary());
  EXPECT_EQ(made.batch_size, GraphsPerBatch(options, SizesOf(graphs_->summary())));
  EXPECT_LT(made.batch_size, 60);
  EXPECT_GT(made.batch_size, 1);
  EXPECT_EQ(made.batching.kind, spec::BatchingKind::kRandom);
  options.batching = {};
  options.batch_size = 7;
  EXPECT_EQ(OptionsOfEvaluation(options, graphs_->summary()).batch_size, 7);
}

TEST_F(SetEvaluationTest, WhatDoesNotFitIsToldInALine) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  EXPECT_THAT(Refusal(Evaluate(PassOf(Options(), graphs_, "torn"))), HasSubstr("jobs/made is no safetensors file"));
  spec::TrainOptions wider = Options();
  wider.model.hidden_channels = 32;
  EXPECT_THAT(Refusal(Evaluate(PassOf(wider, graphs_, weights))), HasSubstr("are not the model's"));
  EvaluateRequest other = PassOf(Options(), graphs_, weights);
  auto trained = graphs_->summary();
  trained.num_targets = 3;
  trained.class_values = {-1, 1};
  other.trained_on = trained;
  EXPECT_THAT(
      Refusal(Evaluate(other)),
      AllOf(HasSubstr("it has 1 targets, and the weights were trained on 3"),
            HasSubstr("its labels are numbers of their own, and those that the weights were trained on are 0, 1, "
                      "..., which stand for the classes -1, 1")))
      << "a regression knows no classes";
  spec::TrainOptions classes = Options();
  classes.loss = spec::Loss::kBce;
  other.options = classes;
  EXPECT_THAT(Refusal(Evaluate(other)),
              HasSubstr("its classes 0, 1, ... stand for themselves, and those of the weights "
                        "for -1, 1"));
  other.options = Options();
  other.trained_on = data::GraphSummary();
  EXPECT_THAT(Refusal(Evaluate(other)),
              HasSubstr("dataset: it is a set of graphs, and the weights were trained on one"));
}

TEST_F(SetEvaluationTest, ASplitWithoutRowsAndAStopEndIt) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  const auto none = ImportGraphs(dir_.path() / "one", {TwentyPaths(1).front()});
  EvaluateRequest empty = PassOf(Options(), none, weights, EvaluatedRows::kValid);
  empty.trained_on = graphs_->summary();
  EXPECT_THAT(Refusal(Evaluate(empty)), HasSubstr("rows: valid: the dataset has no such rows"));

  int64_t most_done = 0;
  const auto stop_after_20 = [&](int64_t done, int64_t total) {
    EXPECT_TRUE(total == 0 || total == kGraphs);
    most_done = std::max(most_done, done);
    return done < 20;
  };
  const auto stopped =
      runner_->EvaluateWeights(PassOf(Options(), graphs_, weights, EvaluatedRows::kAll), stop_after_20);
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_EQ(most_done, 27) << "three batches of nine";
}

TEST_F(GraphEvaluationTest, OfTheTestSplitIsWhatTheRunReported) {
  int number = 0;
  for (const spec::TrainOptions& options : Jobs()) {
    const std::string job = "job-" + std::to_string(number++);
    Recorder context;
    const auto run = Run(options, job, context);
    ASSERT_TRUE(run.ok() && run->result) << run.status();
    EvaluateRequest request = PassOf(options, graph_, Artifact(job, kBestWeightsFile));
    const auto test = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(test.ok()) << test.status();
    EXPECT_EQ(test->loss, run->result->best_test_loss) << job;
    EXPECT_EQ(test->metrics, run->result->best_test_metrics) << job;
    EXPECT_EQ(test->predictions, Artifact(job, kTestPredictionsFile)) << job;

    request.rows = EvaluatedRows::kValid;
    const auto valid = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_EQ(std::ranges::count(valid->predictions, '\n'), valid->rows + 1);
    EXPECT_NE(valid->predictions, test->predictions);
    request.rows = EvaluatedRows::kAll;
    const auto all = runner_->EvaluateWeights(request, kGoOn);
    if (options.links.enabled) {
      EXPECT_THAT(Refusal(all), HasSubstr("rows: all: the job predicts links, some of which it held out"));
    } else {
      ASSERT_TRUE(all.ok()) << all.status();
      EXPECT_EQ(all->rows, graph_->summary().nodes);
      EXPECT_EQ(std::ranges::count(all->predictions, '\n'), all->rows + 1);
    }
  }
}

// The samples of a split are drawn as in the job's own evaluation.
TEST_F(GraphEvaluationTest, OfTheValidationSplitIsWhatTheRunReported) {
  for (const spec::TrainOptions& options : Jobs()) {
    spec::TrainOptions once = options;
    once.epochs = 1;
    if (!once.nodes.fan_outs.empty() && !once.links.enabled) once.nodes.fan_outs = {2, 1};
    Recorder context;
    const std::string job = "valid-" + std::to_string(once.nodes.fan_outs.size()) + std::to_string(once.links.enabled) +
                            std::to_string(once.nodes.layer_wise_evaluation);
    ASSERT_TRUE(Run(once, job, context).ok());
    const auto valid =
        runner_->EvaluateWeights(PassOf(once, graph_, Artifact(job, kBestWeightsFile), EvaluatedRows::kValid), kGoOn);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_EQ(valid->loss, context.epochs.front().valid_loss) << job;
    EXPECT_EQ(valid->metrics, context.epochs.front().valid_metrics) << job;
  }
}

TEST_F(GraphEvaluationTest, WhatMemoryDoesNotHoldIsRefusedBeforeItIsMade) {
  const spec::TrainOptions options = Jobs().front();
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  const auto backend = *device::OpenBackend(DeviceKind::kCpu);
  const auto pass = EvaluateWeights(PassOf(options, graph_, Artifact("job", kBestWeightsFile)), *backend, 2,
                                    {.limits = {.process = uint64_t{64} << 20}}, kGoOn);
  EXPECT_TRUE(absl::IsResourceExhausted(pass.status())) << pass.status();
  EXPECT_THAT(std::string(pass.status().message()), HasSubstr(" that the server holds"));
}

// A running job holds the rest of the memory.
TEST_F(GraphEvaluationTest, WhatDoesNotFitBesideWhatTheServerHoldsIsRefusedBeforeItIsMade) {
  constexpr uint64_t kMegabyte = uint64_t{1} << 20;
  const auto backend = *device::OpenBackend(DeviceKind::kCpu);
  spec::TrainOptions wide = Jobs().front();
  wide.model.hidden_channels = 16'384;
  const auto pass = [&](uint64_t megabytes) {
    const MemoryLimits limits{.process = ResidentBytes() + megabytes * kMegabyte};
    return EvaluateWeights(PassOf(wide, graph_, "torn"), *backend, 2, {.limits = limits}, kGoOn).status();
  };
  const absl::Status refused = pass(16);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the evaluation needs about 0.1 GB"), HasSubstr("accepted: when it holds less")));
  EXPECT_THAT(std::string(pass(1024).message()), HasSubstr("is no safetensors file")) << "the model was made";
}

TEST_F(SetEvaluationTest, WhatDoesNotFitBesideWhatTheServerHoldsIsRefusedBeforeItIsMade) {
  constexpr uint64_t kMegabyte = uint64_t{1} << 20;
  const auto backend = *device::OpenBackend(DeviceKind::kCpu);
  spec::TrainOptions wide = Options();
  wide.model.hidden_channels = 2048;
  const auto pass = [&](uint64_t megabytes) {
    const MemoryLimits limits{.process = ResidentBytes() + megabytes * kMegabyte};
    return EvaluateWeights(PassOf(wide, graphs_, "torn"), *backend, 2, {.limits = limits}, kGoOn).status();
  };
  EXPECT_TRUE(absl::IsResourceExhausted(pass(16))) << "the weights alone take more";
  EXPECT_THAT(std::string(pass(4096).message()), HasSubstr("is no safetensors file"));
}

}  // namespace
}  // namespace permafrost::train
