// One pass of weights over rows of a dataset: as the run that made them evaluated, on what its model can be given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "graph_runner.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "train/evaluated_rows.h"
#include "train/weights_evaluation.h"

namespace permafrost::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr auto kGoOn = [](int64_t /*done*/, int64_t /*total*/) { return true; };

EvaluateRequest PassOf(const TrainOptions& options, data::OpenedDataset dataset, std::string weights,
                       EvaluatedRows rows = EvaluatedRows::kTest) {
  return {.options = options,
          .dataset = std::move(dataset),
          .trained_on = std::nullopt,
          .rows = rows,
          .weights = std::move(weights),
          .source = "jobs/made",
          .predictions = true};
}

std::string Told(const absl::StatusOr<RowsEvaluation>& pass) {
  EXPECT_EQ(pass.status().code(), absl::StatusCode::kInvalidArgument) << pass.status();
  return std::string(pass.status().message());
}

// A category beyond 0..2 in one of them, if `category` is.
std::vector<TinyGraph> Graphs(unsigned category) {
  std::vector<TinyGraph> graphs;
  for (unsigned g = 0; g < 20; ++g) {
    graphs.push_back({.categories = {g % 2, 0, 1}, .edges = {{0, 1}, {1, 2}}, .edge_categories = {}, .label = 0.5});
  }
  graphs[7].categories[2] = category;
  return graphs;
}

class SetEvaluationTest : public RunnerTest {
 protected:
  absl::StatusOr<RowsEvaluation> Evaluate(const EvaluateRequest& request) {
    return runner_->EvaluateWeights(request, kGoOn);
  }
};

TEST_F(SetEvaluationTest, OfTheTestSplitIsWhatTheRunReported) {
  for (const int64_t folds : {0, 5}) {
    TrainOptions options = Options();
    options.metrics = {nn::Metric::kMae, nn::Metric::kRmse};
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
  // Batches are others, and so the last bits: each graph is there once, whatever its split.
  for (int graph = 0; graph < kGraphs; ++graph) {
    const std::string begin = "\n" + std::to_string(graph) + ",";
    EXPECT_THAT(all->predictions, HasSubstr(begin));
    EXPECT_THAT(of_splits, HasSubstr(begin));
  }
}

TEST_F(SetEvaluationTest, AnotherSetMayHaveFewerCategoriesButNoOthers) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  const auto fewer = ImportGraphs(dir_.path() / "fewer", Graphs(1)),
             more = ImportGraphs(dir_.path() / "more", Graphs(3));
  EvaluateRequest request = PassOf(Options(), fewer, weights, EvaluatedRows::kAll);
  EXPECT_THAT(Told(Evaluate(request)),
              AllOf(HasSubstr("dataset: the weights of jobs/made are not the model's: "), HasSubstr("differ")))
      << "nothing is known of what they were trained on";
  request.trained_on = graphs_->summary();
  const auto pass = Evaluate(request);
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->rows, 20);
  request.dataset = more;
  EXPECT_THAT(Told(Evaluate(request)),
              HasSubstr("dataset: its node column 0 has integers 0..3, and the weights were trained on 0..2"));
}

TEST_F(SetEvaluationTest, WhatDoesNotFitIsToldInALine) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  EXPECT_THAT(Told(Evaluate(PassOf(Options(), graphs_, "torn"))), HasSubstr("jobs/made is no safetensors file"));
  TrainOptions wider = Options();
  wider.model.hidden_channels = 32;
  EXPECT_THAT(Told(Evaluate(PassOf(wider, graphs_, weights))), HasSubstr("are not the model's"));
  EvaluateRequest other = PassOf(Options(), graphs_, weights);
  auto trained = graphs_->summary();
  trained.num_targets = 3;
  trained.class_values = {-1, 1};
  trained.edge_features.width = 4;
  other.trained_on = trained;
  EXPECT_THAT(
      Told(Evaluate(other)),
      AllOf(HasSubstr("it has 1 targets, and the weights were trained on 3"),
            HasSubstr("it has 1 edge feature columns, and the weights were trained on 4"),
            HasSubstr("its labels are numbers of their own, and those that the weights were trained on are 0, 1, "
                      "..., which stand for the classes -1, 1")))
      << "a regression knows no classes";
  TrainOptions classes = Options();
  classes.loss = nn::Loss::kBce;
  other.options = classes;
  EXPECT_THAT(Told(Evaluate(other)), HasSubstr("its classes 0, 1, ... stand for themselves, and those of the weights "
                                               "for -1, 1"));
  other.options = Options();
  other.trained_on = data::GraphSummary();
  EXPECT_THAT(Told(Evaluate(other)), HasSubstr("dataset: it is a set of graphs, and the weights were trained on one"));
}

TEST_F(SetEvaluationTest, ASplitWithoutRowsAndAStopEndIt) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  const auto none = ImportGraphs(dir_.path() / "one", {Graphs(1).front()});
  EvaluateRequest empty = PassOf(Options(), none, weights, EvaluatedRows::kValid);
  empty.trained_on = graphs_->summary();
  EXPECT_THAT(Told(Evaluate(empty)), HasSubstr("rows: valid: the dataset has no such rows"));

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

class GraphEvaluationTest : public GraphRunnerTest {
 protected:
  GraphEvaluationTest() : GraphRunnerTest({.named = true}) {}
  // The whole graph, or sampled, evaluated by samples or layer by layer; links.
  static std::vector<TrainOptions> Jobs() {
    TrainOptions whole = DefaultOptions(nn::ModelLevel::kNode);
    whole.model.hidden_channels = 16;
    whole.optimizer.learning_rate = 1e-2;
    whole.batch_size = 50;
    whole.epochs = 3;
    whole.checkpoint.every_seconds = 0;
    TrainOptions sampled = whole;
    sampled.nodes.fan_outs = {4, 3};
    TrainOptions layer_wise = sampled;
    layer_wise.nodes.layer_wise_evaluation = true;
    TrainOptions links = whole;
    links.loss = nn::Loss::kBce;
    links.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2, .seed = 4}, .eval_negatives = 20};
    TrainOptions sampled_links = links;
    sampled_links.nodes.fan_outs = {4, 3};
    return {whole, sampled, layer_wise, links, sampled_links};
  }
};

TEST_F(GraphEvaluationTest, OfTheTestSplitIsWhatTheRunReported) {
  int number = 0;
  for (const TrainOptions& options : Jobs()) {
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
      EXPECT_THAT(Told(all), HasSubstr("rows: all: the job predicts links, some of which it held out"));
    } else {
      ASSERT_TRUE(all.ok()) << all.status();
      EXPECT_EQ(all->rows, graph_->summary().nodes);
      EXPECT_EQ(std::ranges::count(all->predictions, '\n'), all->rows + 1);
    }
  }
}

// Samples of a split are drawn as the job's own evaluation drew them.
TEST_F(GraphEvaluationTest, OfTheValidationSplitIsWhatTheRunReported) {
  for (const TrainOptions& options : Jobs()) {
    TrainOptions once = options;
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

TEST_F(GraphEvaluationTest, LabelsThatAreNoClassesAreRefusedWhereTheLossIsOverClasses) {
  data::GraphSummary trained = graph_->summary(), own = trained;
  const auto told = [&](nn::Loss loss) { return std::string(CheckKnows(trained, own, loss, {}, "dataset").message()); };
  own.integer_labels = false;
  EXPECT_THAT(told(nn::Loss::kCrossEntropy), HasSubstr("its labels are fractions in 0..2"));
  own.integer_labels = true;
  own.min_label = -1;
  EXPECT_THAT(told(nn::Loss::kCrossEntropy),
              HasSubstr("its labels are -1..2, and the weights were trained on classes 0..2"));
  own.max_label = 9;
  EXPECT_EQ(told(nn::Loss::kMse), "") << "a measure may be any";
  own.num_missing_labels = own.nodes * own.num_targets;
  EXPECT_EQ(told(nn::Loss::kCrossEntropy), "") << "without labels there is nothing to be wrong";
}

TEST_F(GraphEvaluationTest, WhatMemoryDoesNotHoldIsRefusedBeforeItIsMade) {
  const TrainOptions options = Jobs().front();
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  const auto backend = *device::OpenBackend(DeviceKind::kCpu);
  const auto pass = EvaluateWeights(PassOf(options, graph_, Artifact("job", kBestWeightsFile)), *backend, 2,
                                    {.limits = {.process = uint64_t{64} << 20}}, kGoOn);
  EXPECT_TRUE(absl::IsResourceExhausted(pass.status())) << pass.status();
  EXPECT_THAT(std::string(pass.status().message()), HasSubstr("accepted: the rows of a split, or no predictions"));
}

TEST_F(GraphEvaluationTest, AnotherGraphMayBeGivenOfEqualColumns) {
  const TrainOptions options = Jobs().front();
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  const auto smaller = WriteTinyGraph(dir_.path() / "smaller", {.nodes = 100});
  EvaluateRequest request = PassOf(options, smaller, Artifact("job", kBestWeightsFile), EvaluatedRows::kAll);
  request.trained_on = graph_->summary();
  const auto pass = runner_->EvaluateWeights(request, kGoOn);
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->rows, 100);
  request.dataset = WriteTinyGraph(dir_.path() / "weighted", {.nodes = 100, .weighted = true});
  EXPECT_THAT(Told(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("its edges have weights, and those that"));
  request.dataset = WriteTinyGraph(dir_.path() / "targets", {.nodes = 100, .targets = 2});
  EXPECT_THAT(Told(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("it has 2 targets"));
  request.dataset = WriteTinyGraph(dir_.path() / "edges", {.nodes = 100, .edge_floats = 2});
  EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "sage reads no features of edges";
}

TEST_F(GraphEvaluationTest, EdgesAreThoseThatTheWeightsWereTrainedOn) {
  const auto trained = WriteTinyGraph(dir_.path() / "trained", {.nodes = 200, .edge_categories = 7});
  for (const nn::Architecture architecture : {nn::Architecture::kGine, nn::Architecture::kGatv2}) {
    const std::string job(nn::kArchitectureNames.Name(architecture));
    TrainOptions options = Jobs().front();
    options.model.architecture = architecture;
    const RunRequest made{.options = options, .dataset = trained, .job_directory = dir_.path() / job};
    Recorder context;
    ASSERT_TRUE(runner_->Run(made, context).ok());
    EvaluateRequest request = PassOf(options, trained, Artifact(job, kBestWeightsFile), EvaluatedRows::kAll);
    request.trained_on = trained->summary();
    const auto all = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(all.ok()) << all.status();
    // Of fewer categories, which the weights know.
    request.dataset = WriteTinyGraph(dir_.path() / ("fewer-" + job), {.nodes = 100, .edge_categories = 3});
    EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << job;
    request.dataset = WriteTinyGraph(dir_.path() / ("more-" + job), {.nodes = 100, .edge_categories = 9});
    EXPECT_THAT(Told(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("its edge column 0 has integers 0..8, and the weights were trained on 0..6"));
    request.dataset = WriteTinyGraph(dir_.path() / ("floats-" + job), {.nodes = 100, .edge_floats = 2});
    EXPECT_THAT(Told(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("its edge features are float32, and the weights were trained on int32"));
    request.dataset = WriteTinyGraph(dir_.path() / ("none-" + job), {.nodes = 100});
    EXPECT_THAT(Told(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("it has 0 edge feature columns, and the weights were trained on 2"));
  }
}

}  // namespace
}  // namespace permafrost::train
