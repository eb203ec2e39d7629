// Tests weights on a dataset that they were not trained on: what they accept, and what is refused in one line.
#include "train/tasks/evaluated_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "evaluation_fixture.h"
#include "recorder.h"

namespace permafrost::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(SetEvaluationTest, AnotherSetMayHaveFewerCategoriesButNoOthers) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const std::string weights = Artifact("job", kBestWeightsFile);
  const auto fewer = ImportGraphs(dir_.path() / "fewer", TwentyPaths(1)),
             more = ImportGraphs(dir_.path() / "more", TwentyPaths(3));
  EvaluateRequest request = PassOf(Options(), fewer, weights, EvaluatedRows::kAll);
  EXPECT_THAT(Refusal(Evaluate(request)),
              AllOf(HasSubstr("dataset: the weights of jobs/made are not the model's: "), HasSubstr("differ")))
      << "nothing is known of what they were trained on";
  request.trained_on = graphs_->summary();
  const auto pass = Evaluate(request);
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->rows, 20);
  request.dataset = more;
  EXPECT_THAT(Refusal(Evaluate(request)),
              HasSubstr("dataset: its node column 0 has the value 3 in 1 row, which the dataset that the weights were "
                        "trained on has nowhere"));
}

TEST_F(SetEvaluationTest, ASetWithoutLabelsIsPredictedForAndNeitherEvaluatedNorTrainedOn) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  const auto labelled = ImportGraphs(dir_.path() / "labelled", TwentyPaths(1)),
             unlabelled = ImportGraphs(dir_.path() / "unlabelled", TwentyPaths(1), /*labelled=*/false);
  EvaluateRequest request = PassOf(Options(), labelled, Artifact("job", kBestWeightsFile), EvaluatedRows::kAll);
  request.trained_on = graphs_->summary();
  const auto with = Evaluate(request);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->metrics.size(), 1U);
  request.dataset = unlabelled;
  const auto without = Evaluate(request);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->rows, 20);
  EXPECT_EQ(without->predictions, with->predictions) << "labels are not read";
  EXPECT_TRUE(std::isnan(without->loss));
  EXPECT_TRUE(without->metrics.empty());
  request.predictions = false;
  EXPECT_THAT(Refusal(Evaluate(request)), HasSubstr("dataset: it has no labels to evaluate by; accepted: predictions"));
  request.predictions = true;
  request.trained_on = std::nullopt;
  EXPECT_THAT(Refusal(Evaluate(request)), HasSubstr("dataset: it has no targets, and the dataset"));
  EXPECT_THAT(std::string(runner_->CheckCompatible(Options(), unlabelled->summary(), "spec.").message()),
              HasSubstr("spec.dataset: has no labels; at least one target column is needed"));
}

TEST_F(SetEvaluationTest, OnlyAModelItselfKnowsWhetherItReadsPositions) {
  const data::GraphSetSummary trained = graphs_->summary();
  data::GraphSetSummary own = trained;
  own.position_columns = 3;
  spec::TrainOptions options = Options();
  EXPECT_TRUE(CheckKnows(trained, own, options, "dataset").ok()) << "our own models read none";
  options.model.architecture = spec::Architecture::kProgram;
  EXPECT_TRUE(CheckKnows(trained, own, options, "dataset").ok()) << "MakeModel refuses a program that reads some";
}

TEST_F(GraphEvaluationTest, LabelsThatAreNoClassesAreRefusedWhereTheLossIsOverClasses) {
  data::GraphSummary trained = graph_->summary(), own = trained;
  const auto told = [&](spec::Loss loss) {
    spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
    options.loss = loss;
    return std::string(CheckKnows(trained, own, options, "dataset").message());
  };
  own.integer_labels = false;
  EXPECT_THAT(told(spec::Loss::kCrossEntropy), HasSubstr("its labels are fractions in 0..2"));
  own.integer_labels = true;
  own.min_label = -1;
  EXPECT_THAT(told(spec::Loss::kCrossEntropy),
              HasSubstr("its labels are -1..2, and the weights were trained on classes 0..2"));
  own.max_label = 9;
  EXPECT_EQ(told(spec::Loss::kMse), "") << "a measure may be any";
  own.num_missing_labels = own.nodes * own.num_targets;
  EXPECT_EQ(told(spec::Loss::kCrossEntropy), "") << "without labels there is nothing to be wrong";
  own.num_targets = 0;
  own.num_missing_labels = 0;
  EXPECT_EQ(told(spec::Loss::kCrossEntropy), "") << "nor without targets";
}

TEST_F(GraphEvaluationTest, AnotherGraphMayBeGivenOfEqualColumns) {
  const spec::TrainOptions options = Jobs().front();
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  const auto smaller = WriteTinyGraph(dir_.path() / "smaller", {.nodes = 100});
  EvaluateRequest request = PassOf(options, smaller, Artifact("job", kBestWeightsFile), EvaluatedRows::kAll);
  request.trained_on = graph_->summary();
  const auto pass = runner_->EvaluateWeights(request, kGoOn);
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->rows, 100);
  request.dataset = WriteTinyGraph(dir_.path() / "weighted", {.nodes = 100, .weighted = true});
  EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "sage reads no weights of edges";
  request.dataset = WriteTinyGraph(dir_.path() / "targets", {.nodes = 100, .targets = 2});
  EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("it has 2 targets"));
  request.dataset = WriteTinyGraph(dir_.path() / "edges", {.nodes = 100, .edge_floats = 2});
  EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "sage reads no features of edges";
}

TEST_F(GraphEvaluationTest, WeightsOfEdgesAreThereOrNotWhereTheModelReadsThem) {
  const data::GraphSummary trained = graph_->summary();
  data::GraphSummary own = trained;
  own.weighted = true;
  const auto told = [&](spec::Architecture architecture, spec::EdgeInputs edges) {
    spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
    options.model.architecture = architecture;
    options.model.edge_inputs = edges;
    return std::string(CheckKnows(trained, own, options, "dataset").message());
  };
  EXPECT_EQ(told(spec::Architecture::kSage, spec::EdgeInputs::kAuto), "");
  EXPECT_EQ(told(spec::Architecture::kGatv2, spec::EdgeInputs::kNone), "");
  constexpr char kLine[] = "its edges have weights, and those that the weights were trained on have none";
  EXPECT_THAT(told(spec::Architecture::kGcn, spec::EdgeInputs::kAuto), HasSubstr(kLine));
  EXPECT_THAT(told(spec::Architecture::kGatv2, spec::EdgeInputs::kWeights), HasSubstr(kLine));
}

TEST_F(GraphEvaluationTest, DirectionsOfEdgesFollowThoseThatWereTrainedOn) {
  using data::EdgeDirections;
  const struct {
    EdgeDirections trained, own;
    const char* told;
  } kCases[] = {
      {EdgeDirections::kAdded, EdgeDirections::kKept, "accepted: the dataset imported with inverse_edges add"},
      {EdgeDirections::kListed, EdgeDirections::kKept, "which the source lists; accepted: the dataset imported with"},
      {EdgeDirections::kKept, EdgeDirections::kAdded, "accepted: the dataset imported with inverse_edges keep"},
      // Both have each edge in both directions.
      {EdgeDirections::kAdded, EdgeDirections::kListed, ""},
      {EdgeDirections::kAdded, EdgeDirections::kKeptBoth, ""},
      {EdgeDirections::kListed, EdgeDirections::kAdded, ""},
      {EdgeDirections::kKeptBoth, EdgeDirections::kAdded, ""},
      // Both leave the edges as the source lists them.
      {EdgeDirections::kKept, EdgeDirections::kKeptBoth, ""},
      {EdgeDirections::kKeptBoth, EdgeDirections::kKept, ""},
      {EdgeDirections::kKept, EdgeDirections::kListed, ""},
      // An older version did not record the directions.
      {EdgeDirections::kUnknown, EdgeDirections::kKept, ""},
      {EdgeDirections::kAdded, EdgeDirections::kUnknown, ""},
  };
  for (const auto& c : kCases) {
    const auto told = [&](auto trained, const spec::TrainOptions& options) {
      auto own = trained;
      trained.directions = c.trained;
      own.directions = c.own;
      trained.inverse_edges_added = c.trained == EdgeDirections::kAdded;
      own.inverse_edges_added = c.own == EdgeDirections::kAdded;
      return std::string(CheckKnows(trained, own, options, "dataset").message());
    };
    const std::string of_graph = told(graph_->summary(), DefaultOptions(spec::ModelLevel::kNode)),
                      of_set = told(data::GraphSetSummary{}, DefaultOptions(spec::ModelLevel::kGraph));
    EXPECT_EQ(of_graph, of_set);
    if (*c.told == '\0') {
      EXPECT_EQ(of_graph, "");
    } else {
      EXPECT_THAT(of_graph, HasSubstr(c.told));
    }
  }
  data::GraphSummary older = graph_->summary(), own = older;
  older.inverse_edges_added = true;
  older.directions = EdgeDirections::kUnknown;
  own.directions = EdgeDirections::kKept;
  EXPECT_THAT(std::string(CheckKnows(older, own, DefaultOptions(spec::ModelLevel::kNode), "dataset").message()),
              HasSubstr("which the import added"))
      << "an older version says when it added them";
}

TEST_F(GraphEvaluationTest, AGraphWithoutLabelsIsPredictedForAndNotEvaluated) {
  const auto labelled = WriteTinyGraph(dir_.path() / "labelled", {.nodes = 100}),
             unlabelled = WriteTinyGraph(dir_.path() / "unlabelled", {.nodes = 100, .targets = 0});
  int number = 0;
  for (const spec::TrainOptions& options : Jobs()) {
    if (options.links.enabled) continue;
    const std::string job = "job-" + std::to_string(number++);
    Recorder context;
    ASSERT_TRUE(Run(options, job, context).ok());
    EvaluateRequest request = PassOf(options, labelled, Artifact(job, kBestWeightsFile), EvaluatedRows::kAll);
    request.trained_on = graph_->summary();
    const auto with = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_FALSE(with->metrics.empty());
    request.dataset = unlabelled;
    const auto without = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(without->rows, 100);
    EXPECT_EQ(without->predictions, with->predictions) << job << ": labels are not read";
    EXPECT_TRUE(std::isnan(without->loss));
    EXPECT_TRUE(without->metrics.empty());
    request.predictions = false;
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("dataset: it has no labels to evaluate by; accepted: predictions"));
    request.predictions = true;
    request.trained_on = std::nullopt;
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("dataset: it has no targets, and the dataset"));
  }
}

TEST_F(GraphEvaluationTest, LinksOfAnotherGraphAreToldWhateverItsTargetsAndFewerCategories) {
  const auto trained = WriteTinyGraph(dir_.path() / "trained", {.nodes = 200, .edge_categories = 7});
  for (const bool sampled : {false, true}) {
    spec::TrainOptions options = Jobs().back();
    if (!sampled) options.nodes.fan_outs = {};
    options.model.architecture = spec::Architecture::kGine;
    const std::string job = sampled ? "sampled" : "whole";
    Recorder context;
    ASSERT_TRUE(
        runner_->Run({.options = options, .dataset = trained, .job_directory = dir_.path() / job}, context).ok());
    EvaluateRequest request = PassOf(options, trained, Artifact(job, kBestWeightsFile));
    request.trained_on = trained->summary();
    request.dataset =
        WriteTinyGraph(dir_.path() / ("other-" + job), {.nodes = 100, .edge_categories = 3, .targets = 2});
    const auto pass = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(pass.ok()) << pass.status();
    EXPECT_GT(pass->rows, 0);
    EXPECT_TRUE(std::isfinite(pass->loss));
    EXPECT_FALSE(pass->metrics.empty());
    request.dataset = WriteTinyGraph(dir_.path() / ("none-" + job), {.nodes = 100, .edge_categories = 7, .targets = 0});
    EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "links need no labels";
    request.dataset = WriteTinyGraph(dir_.path() / ("more-" + job), {.nodes = 100, .edge_categories = 9});
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("its edge column 0 has the value 7 in "));
  }
}

TEST_F(GraphEvaluationTest, WeightsOfDegreesCarryToAnotherGraphUnlessAnOlderVersionMadeThem) {
  spec::TrainOptions options = Jobs().front();
  options.model.node_inputs = spec::NodeInputs::kDegree;
  const auto other = WriteTinyGraph(dir_.path() / "other", {.nodes = 60, .features = false});
  ASSERT_NE(other->summary().max_degree, graph_->summary().max_degree);
  for (const bool older : {false, true}) {
    options.model.own_degree_columns = older;
    const std::string job = older ? "older" : "newer";
    Recorder context;
    ASSERT_TRUE(Run(options, job, context).ok());
    EvaluateRequest request = PassOf(options, graph_, Artifact(job, kBestWeightsFile), EvaluatedRows::kAll);
    EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "its own graph";
    request.trained_on = graph_->summary();
    request.dataset = other;
    const auto pass = runner_->EvaluateWeights(request, kGoOn);
    if (older) {
      EXPECT_THAT(Refusal(pass), AllOf(HasSubstr("dataset: its nodes have up to "), HasSubstr("256 on every graph")));
    } else {
      ASSERT_TRUE(pass.ok()) << pass.status();
      EXPECT_EQ(pass->rows, 60);
    }
  }
}

TEST_F(GraphEvaluationTest, WhatEachNodeLearnedIsOfTheSameNodesOnly) {
  spec::TrainOptions options = Jobs().front();
  options.model.node_inputs = spec::NodeInputs::kLearned;
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  EvaluateRequest request = PassOf(options, WriteTinyGraph(dir_.path() / "same", {.features = false, .named = true}),
                                   Artifact("job", kBestWeightsFile), EvaluatedRows::kAll);
  request.trained_on = graph_->summary();
  request.trained_names = graph_->names_checksum();
  EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << "their features are not read";
  request.trained_names.reset();
  EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
              HasSubstr("dataset: each node has weights of its own, and its nodes cannot be shown to be in the order"));
  request.trained_names = graph_->names_checksum();
  request.dataset = WriteTinyGraph(dir_.path() / "unnamed", {.features = false});
  EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("each node has weights of its own"));
  request.dataset = WriteTinyGraph(dir_.path() / "fewer", {.nodes = 100});
  EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
              HasSubstr("it has 100 nodes, and each of the 400 nodes that the weights were trained on"));
}

TEST_F(GraphEvaluationTest, EdgesAreThoseThatTheWeightsWereTrainedOn) {
  const auto trained = WriteTinyGraph(dir_.path() / "trained", {.nodes = 200, .edge_categories = 7});
  for (const spec::Architecture architecture : {spec::Architecture::kGine, spec::Architecture::kGatv2}) {
    const std::string job(spec::kArchitectureNames.Name(architecture));
    spec::TrainOptions options = Jobs().front();
    options.model.architecture = architecture;
    const RunRequest made{.options = options, .dataset = trained, .job_directory = dir_.path() / job};
    Recorder context;
    ASSERT_TRUE(runner_->Run(made, context).ok());
    EvaluateRequest request = PassOf(options, trained, Artifact(job, kBestWeightsFile), EvaluatedRows::kAll);
    request.trained_on = trained->summary();
    const auto all = runner_->EvaluateWeights(request, kGoOn);
    ASSERT_TRUE(all.ok()) << all.status();
    // This graph has fewer categories, all of which the weights know.
    request.dataset = WriteTinyGraph(dir_.path() / ("fewer-" + job), {.nodes = 100, .edge_categories = 3});
    EXPECT_TRUE(runner_->EvaluateWeights(request, kGoOn).ok()) << job;
    request.dataset = WriteTinyGraph(dir_.path() / ("more-" + job), {.nodes = 100, .edge_categories = 9});
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)), HasSubstr("its edge column 0 has the value 7 in "));
    request.dataset = WriteTinyGraph(dir_.path() / ("floats-" + job), {.nodes = 100, .edge_floats = 2});
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("its edge features are float32, and the weights were trained on int32"));
    request.dataset = WriteTinyGraph(dir_.path() / ("none-" + job), {.nodes = 100});
    EXPECT_THAT(Refusal(runner_->EvaluateWeights(request, kGoOn)),
                HasSubstr("it has 0 edge feature columns, and the weights were trained on 2"));
  }
}

}  // namespace
}  // namespace permafrost::train
