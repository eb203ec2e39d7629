// Tests training on the nodes of one large graph, run by run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/store/other_splits.h"
#include "node_cases.h"
#include "recorder.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using spec::Policy;
using testing::HasSubstr;

class NodeRunTest : public NodeTaskTest {
 protected:
  void SetUp() override { runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2}); }
  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::shared_ptr<const data::Graph>& graph,
                                 const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graph, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  std::unique_ptr<Runner> runner_;
};

TEST_F(NodeRunTest, MeasuresOfNodesAreLearned) {
  const auto graph = Graph({.measures = true});
  for (const spec::Loss loss : {spec::Loss::kMse, spec::Loss::kL1}) {
    for (const bool whole : {false, true}) {
      spec::TrainOptions options = SampledJob(spec::Architecture::kSage);
      options.loss = loss;
      options.metrics = {spec::Metric::kMae, spec::Metric::kRmse, spec::Metric::kR2};
      options.epochs = whole ? 100 : 30;
      if (whole) options.nodes.fan_outs = {};
      const std::string job = std::string(spec::kLossNames.Name(loss)) + (whole ? "-whole" : "-sampled");
      Recorder told;
      const auto outcome = Run(options, graph, job, told);
      ASSERT_TRUE(outcome.ok() && outcome->result) << job << ": " << outcome.status();
      EXPECT_LT(told.epochs.back().train_loss, 0.7 * told.epochs.front().train_loss) << job;
      EXPECT_GT(told.epochs.back().valid_metrics.at(2), 0.3) << job << ": R2";
      for (const EpochMetrics& epoch : told.epochs) {
        const double rmse = epoch.valid_metrics.at(1);
        const double of_loss = loss == spec::Loss::kMse ? rmse * rmse : epoch.valid_metrics.at(0);
        EXPECT_NEAR(epoch.valid_loss, of_loss, 1e-4 * (1 + of_loss)) << job << ", epoch " << epoch.epoch;
      }
      const auto best = std::ranges::min_element(told.epochs, {}, &EpochMetrics::valid_metric);
      EXPECT_EQ(outcome->result->best_epoch, best->epoch) << job << ": the lowest error is the best";
      EXPECT_THAT(Artifact(job, kTestPredictionsFile), testing::StartsWith("node,prediction_0\n")) << job;
    }
  }
}

TEST_F(NodeRunTest, EveryKindLearnsAndTellsOfIt) {
  std::vector<NodeCase> cases = NodeCases();
  spec::TrainOptions layer_wise = SampledJob(spec::Architecture::kGcn);
  layer_wise.nodes.layer_wise_evaluation = true;
  cases.push_back({"layer-wise evaluation", {.weighted = true}, layer_wise});
  for (NodeCase& c : cases) {
    const auto graph = Graph(c.graph);
    c.options.epochs = 30;
    c.options.graph_cache.policy = Policy::kFreeze;
    Recorder told;
    const std::string job = "job-" + std::to_string(graphs_);
    const auto outcome = Run(c.options, graph, job, told);
    ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
    ASSERT_EQ(told.epochs.size(), 30U);
    EXPECT_LT(told.epochs.back().train_loss, 0.9 * told.epochs.front().train_loss) << c.why;
    EXPECT_GT(told.epochs.back().valid_metric, 0.7) << c.why << ": accuracy or ROC-AUC";
    EXPECT_LE(told.epochs.back().valid_metric, 1.0) << c.why;
    EXPECT_EQ(told.progress.graphs, 30 * 240) << c.why << ": seeds";
    const RunResult& result = *outcome->result;
    const auto best = std::ranges::max_element(told.epochs, {}, &EpochMetrics::valid_metric);
    EXPECT_EQ(result.best_epoch, best->epoch) << c.why << ": the highest is the best";
    EXPECT_GT(result.best_test_metric, 0.6) << c.why;
    const std::string predictions = Artifact(job, kTestPredictionsFile);
    EXPECT_THAT(predictions, testing::StartsWith("node,prediction_0,prediction_1,prediction_2\n")) << c.why;
    EXPECT_EQ(std::ranges::count(predictions, '\n'), 1 + 80) << c.why;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      EXPECT_EQ(told.cache.of(mode).eager_steps, 0) << c.why;
      EXPECT_EQ(told.cache.of(mode).graph_breaks, 0) << c.why;
    }
    EXPECT_TRUE(told.cache.of_seeds) << c.why;
    EXPECT_EQ(told.progress.look_ahead.has_value(), !c.options.nodes.fan_outs.empty()) << c.why;
    if (told.progress.look_ahead) {
      EXPECT_GT(told.progress.look_ahead->sampled_edges, 0) << c.why;
    }
  }
}

TEST_F(NodeRunTest, PredictionsAreOfTheSourcesNames) {
  std::vector<NodeCase> cases = {NodeCases()[2], NodeCases().back()};
  ASSERT_TRUE(!cases[0].options.nodes.fan_outs.empty() && cases[1].options.nodes.fan_outs.empty());
  for (NodeCase& c : cases) {
    Recorder told;
    const std::string rows = "rows-" + std::to_string(graphs_), names = "names-" + std::to_string(graphs_);
    c.options.epochs = 1;
    ASSERT_TRUE(Run(c.options, Graph(c.graph), rows, told).ok()) << c.why;
    c.graph.named = true;
    ASSERT_TRUE(Run(c.options, Graph(c.graph), names, told).ok()) << c.why;
    const std::string plain = Artifact(rows, kTestPredictionsFile);
    EXPECT_THAT(plain, testing::HasSubstr("\n4,")) << c.why;
    std::istringstream lines(plain);
    std::string want, line;
    std::getline(lines, want);
    want += '\n';
    while (std::getline(lines, line)) {
      const size_t comma = line.find(',');
      want += "\"the " + line.substr(0, comma) + "rd, \"\"x\"\"\"" + line.substr(comma) + "\n";
    }
    EXPECT_EQ(Artifact(names, kTestPredictionsFile), want) << c.why << ": RFC 4180";
  }
}

TEST_F(NodeRunTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  const std::vector<NodeCase> cases = NodeCases();
  // SAGE and GCN on samples, and GCN on the whole graph, where each epoch is one step.
  for (const size_t place : {size_t{2}, size_t{4}, size_t{6}}) {
    for (const spec::Shapes shapes : {spec::Shapes::kAuto, spec::Shapes::kExact, spec::Shapes::kLadder}) {
      NodeCase c = cases[place];
      c.options.graph_cache.shapes = shapes;
      const bool whole_graph = c.options.nodes.fan_outs.empty();
      if (whole_graph && shapes != spec::Shapes::kAuto) continue;  // all shapes are the same there
      const auto graph = Graph(c.graph);
      const std::string name = std::to_string(place) + "-" + std::string(spec::kShapesNames.Name(shapes));
      const std::string whole = "whole-" + name;
      Recorder undisturbed;
      const auto run = Run(c.options, graph, whole, undisturbed);
      ASSERT_TRUE(run.ok()) << c.why << ": " << run.status();
      for (const int64_t stop_step : whole_graph ? std::vector<int64_t>{0, 1, 3} : std::vector<int64_t>{0, 2, 5, 13}) {
        const std::string job = "stopped-" + name + "-" + std::to_string(stop_step);
        Recorder first, second;
        first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
        const auto stopped = Run(c.options, graph, job, first);
        ASSERT_TRUE(stopped.ok()) << c.why;
        ASSERT_EQ(stopped->end, RunEnd::kDrained) << c.why;
        ASSERT_TRUE(Run(c.options, graph, job, second).ok()) << c.why;
        EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact(whole, kLastWeightsFile)) << c.why << " " << stop_step;
        EXPECT_EQ(Artifact(job, kBestWeightsFile), Artifact(whole, kBestWeightsFile)) << c.why << " " << stop_step;
        EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact(whole, kTestPredictionsFile))
            << c.why << " " << stop_step;
      }
    }
  }
}

TEST_F(NodeRunTest, CommandsSwitchTheCacheOfSampledBlocksWhereTheRunWithoutAStopDoes) {
  using graphcache::CommandKind;
  using spec::Policy;
  using spec::Shapes;
  const std::vector<graphcache::Command> commands = {
      {.sequence = 1, .kind = CommandKind::kUpdatePolicy, .update = {.shapes = Shapes::kLadder, .rungs = 2}, .step = 2},
      {.sequence = 2, .kind = CommandKind::kUpdatePolicy, .update = {.max_executables = 2}, .step = 4},
      {.sequence = 3, .kind = CommandKind::kClear, .update = {}, .step = 6},
      {.sequence = 4,
       .kind = CommandKind::kUpdatePolicy,
       .update = {.policy = Policy::kAlways, .shapes = Shapes::kExact, .max_executables = 0},
       .step = 8},
      {.sequence = 5, .kind = CommandKind::kFreeze, .update = {}, .step = 10}};
  const NodeCase c = NodeCases()[2];
  const auto graph = Graph(c.graph);
  Recorder whole;
  whole.commands = commands;
  ASSERT_TRUE(Run(c.options, graph, "whole", whole).ok());
  ASSERT_GT(whole.progress.step, 12) << "each command takes effect";
  EXPECT_EQ(whole.cache.command_sequence, 5);
  EXPECT_TRUE(whole.cache.frozen);
  for (const int64_t stop_step : {2, 3, 5, 7, 9, 11}) {
    Recorder run;
    run.commands = commands;
    run.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    const auto stopped = Run(c.options, graph, "stopped", run);
    ASSERT_TRUE(stopped.ok()) << stopped.status();
    ASSERT_EQ(stopped->end, RunEnd::kDrained);
  }
  Recorder last;
  last.commands = commands;
  ASSERT_TRUE(Run(c.options, graph, "stopped", last).ok());
  EXPECT_EQ(Artifact("stopped", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
}

TEST_F(NodeRunTest, WhatAGraphCannotServeIsRefusedBeforeTheRun) {
  const data::GraphSummary fine = Graph({})->summary();
  const spec::TrainOptions sage = SampledJob(spec::Architecture::kSage);
  const auto with = [](auto value, const auto& change) {
    change(value);
    return value;
  };
  using S = data::GraphSummary;
  const struct {
    const char* why;
    spec::TrainOptions options;
    S summary;
    const char* field;
    const char* says;
  } kCases[] = {
      {"a graph-level model", with(sage, [](auto& o) { o.model.level = spec::ModelLevel::kGraph; }), fine,
       "spec.model.architecture", "one graph of 400 nodes; use gine or sage or gcn or gin or gatv2"},
      {"no features of edges", with(sage, [](auto& o) { o.model.architecture = spec::Architecture::kGine; }), fine,
       "spec.model.edge_inputs", "gine reads features of edges, and the dataset's edges have none; accepted: another"},
      {"weights in place of features of edges",
       with(sage, [](auto& o) { o.model.architecture = spec::Architecture::kGine; }),
       with(fine, [](S& s) { s.weighted = true; }), "spec.model.edge_inputs", "accepted: weights, or another model"},
      {"no weights of edges",
       with(sage,
            [](auto& o) {
              o.model.architecture = spec::Architecture::kGatv2;
              o.model.edge_inputs = spec::EdgeInputs::kWeights;
            }),
       fine, "spec.model.edge_inputs", "is weights, and the dataset's edges have none"},
      {"integers of edges that are no categories",
       with(sage, [](auto& o) { o.model.architecture = spec::Architecture::kGatv2; }),
       with(fine,
            [](S& s) { s.edge_features = {.type = data::DataType::kInt64, .width = 1, .min = {-4}, .max = {9}}; }),
       "spec.dataset", "edge feature column 0 has integers -4..9"},
      {"no features", with(sage, [](auto& o) { o.model.node_inputs = spec::NodeInputs::kFeatures; }),
       with(fine, [](S& s) { s.node_features = {}; }), "spec.model.node_inputs", "no features"},
      {"learned inputs of more nodes than memory holds", sage,
       with(fine,
            [](S& s) {
              s.node_features = {};
              s.nodes = 3'000'000'000;
            }),
       "spec.model", "needs about"},
      {"no training nodes", sage, with(fine, [](S& s) { s.split_nodes = {}; }), "spec.dataset", "train split is empty"},
      {"no labels", sage, with(fine, [](S& s) { s.num_targets = 0; }), "spec.dataset", "no labels"},
      {"classes that are fractions", sage, with(fine, [](S& s) { s.integer_labels = false; }), "spec.loss",
       "fractions in 0..2"},
      {"negative classes", sage, with(fine, [](S& s) { s.min_label = -1; }), "spec.loss", "-1..2"},
      {"several targets", sage, with(fine, [](S& s) { s.num_targets = 2; }), "spec.loss", "2 targets; use bce"},
      {"binary loss, three classes", with(sage, [](auto& o) { o.loss = spec::Loss::kBce; }), fine, "spec.loss",
       "labels 0 and 1, and the dataset's are 0..2"},
      {"weights of other classes",
       with(sage,
            [](auto& o) {
              o.class_weights = {1, 2};
            }),
       fine, "spec.class_weights", "has 2 weights; the dataset has 3 classes"},
      {"no edge weights to draw by", with(sage, [](auto& o) { o.nodes.weighted = true; }), fine,
       "spec.neighbor_sampling.weighted", "no weights"},
      {"beyond the memory", with(sage, [](auto& o) { o.nodes.fan_outs = {}; }),
       with(fine,
            [](S& s) {
              s.nodes = 3'000'000'000;
              s.edges = 100'000'000'000;
            }),
       "spec.model", "the whole graph in every step"},
  };
  EXPECT_TRUE(runner_->CheckCompatible(sage, fine, "spec.").ok());
  for (const auto& c : kCases) {
    const absl::Status status = runner_->CheckCompatible(c.options, c.summary, "spec.");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_EQ(GetViolations(status).size(), 1U) << c.why;
    EXPECT_EQ(GetViolations(status)[0].field, c.field) << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr(c.says)) << c.why;
  }
}

TEST_F(NodeRunTest, ATrainSplitWithoutALabelIsRefused) {
  const auto graph = Graph({});
  const std::vector<uint32_t> unlabelled{18, 37, 56};
  const auto bare = data::WithSplits(graph, {.rows = {unlabelled, {1}, {2}}, .name = "bare"}, graph->summary());
  const auto fits = [&](const spec::TrainOptions& options) {
    return runner_->CheckFits({.options = options, .dataset = bare}, "spec.", [] { return true; }).status();
  };
  spec::TrainOptions options = SampledJob(spec::Architecture::kSage);
  const absl::Status refused = fits(options);
  ASSERT_EQ(GetViolations(refused).size(), 1U) << refused;
  EXPECT_EQ(GetViolations(refused)[0].field, "spec.dataset");
  EXPECT_EQ(GetViolations(refused)[0].description,
            "none of the 3 nodes of its train split has a label; at least one is needed");
  const auto one =
      data::WithSplits(graph, {.rows = {std::vector<uint32_t>{18, 20}, {1}, {2}}, .name = "one"}, graph->summary());
  EXPECT_EQ(runner_->CheckFits({.options = options, .dataset = one}, "spec.", [] { return true; }).status(),
            absl::OkStatus());
  options.links.enabled = true;
  options.loss = spec::Loss::kBce;
  EXPECT_EQ(fits(options), absl::OkStatus()) << "links are learned without labels";
}

}  // namespace
}  // namespace permafrost::train
