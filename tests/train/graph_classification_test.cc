// Tests classes of whole graphs: cross-entropy on a set, its metrics, and folds that replace the set's splits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/store/other_splits.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "tiny_graphs.h"
#include "train/tasks/evaluated_rows.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

constexpr int kClassified = 120;

class GraphClassificationTest : public RunnerTest {
 protected:
  void SetUp() override {
    graphs_ = ImportGraphs(dir_.path(), Classified());
    runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  }
  // Returns random trees whose nodes have at most two of three categories. The class is the category that a tree was
  // drawn without. Every 13th class is missing.
  static std::vector<TinyGraph> Classified() {
    std::mt19937 random(11);
    std::vector<TinyGraph> graphs;
    for (int g = 0; g < kClassified; ++g) {
      TinyGraph graph;
      const unsigned n = 2 + random() % 8, absent = random() % 3;
      for (unsigned v = 0; v < n; ++v) graph.categories.push_back((absent + 1 + random() % 2) % 3);
      for (unsigned v = 1; v < n; ++v) graph.edges.emplace_back(v, random() % v);
      if (g % 13 != 12) graph.label = absent;
      graphs.push_back(std::move(graph));
    }
    return graphs;
  }
  static spec::TrainOptions Options() {
    spec::TrainOptions options = RunnerTest::Options();
    options.loss = spec::Loss::kCrossEntropy;
    options.metrics = {spec::Metric::kF1Macro, spec::Metric::kAccuracy, spec::Metric::kRocAuc};
    options.epochs = 15;
    options.batch_size = 16;
    return options;
  }
};

TEST_F(GraphClassificationTest, LearnsClassesAndTellsEveryMetric) {
  for (const spec::Lowering lowering : {spec::Lowering::kAuto, spec::Lowering::kPlain}) {
    Recorder told;
    spec::TrainOptions options = Options();
    options.model.lowering = lowering;
    const std::string job(spec::kLoweringNames.Name(lowering));
    const auto outcome = Run(options, job, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(told.epochs.size(), 15U);
    EXPECT_LT(told.epochs.back().train_loss, told.epochs.front().train_loss / 2);
    const RunResult& result = *outcome->result;
    ASSERT_EQ(result.best_test_metrics.size(), 3U);
    EXPECT_GT(result.best_test_metrics[1], 0.8) << "accuracy";
    EXPECT_EQ(result.best_test_metrics[0], result.best_test_metric);
    EXPECT_EQ(result.best_valid_metrics[0], result.best_valid_metric);
    EXPECT_EQ(result.final_test_metrics[0], result.final_test_metric);
    // The first metric chooses the best epoch, the earliest one of equals.
    const auto best = std::ranges::max_element(told.epochs, {}, &EpochMetrics::valid_metric);
    EXPECT_EQ(result.best_epoch, best->epoch);
    EXPECT_EQ(result.best_valid_metrics, best->valid_metrics);
    for (const EpochMetrics& epoch : told.epochs) EXPECT_EQ(epoch.valid_metrics.front(), epoch.valid_metric);
    EXPECT_THAT(Artifact(job, kTestPredictionsFile), HasSubstr("graph,prediction_0,prediction_1,prediction_2\n"));
  }
}

TEST_F(GraphClassificationTest, ClassWeightsCount) {
  Recorder plain, equal, weighted;
  spec::TrainOptions options = Options();
  options.epochs = 2;
  ASSERT_TRUE(Run(options, "plain", plain).ok());
  options.class_weights = {1, 1, 1};
  ASSERT_TRUE(Run(options, "equal", equal).ok());
  options.class_weights = {9, 1, 1};
  ASSERT_TRUE(Run(options, "weighted", weighted).ok());
  EXPECT_NEAR(equal.epochs.back().train_loss, plain.epochs.back().train_loss, 1e-5);
  EXPECT_GT(std::abs(weighted.epochs.back().train_loss - plain.epochs.back().train_loss), 1e-3);
}

TEST_F(GraphClassificationTest, AFoldIsTestedAndEndsEqualAfterAStop) {
  spec::TrainOptions options = Options();
  options.epochs = 4;
  options.cross_validation = {.folds = 5, .fold = 3, .seed = 8};
  Recorder whole, stopped, resumed, other;
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  stopped.stop = [](const Progress& p) { return p.step >= 9 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_EQ(Run(options, "cut", stopped)->end, RunEnd::kDrained);
  ASSERT_EQ(Run(options, "cut", resumed)->end, RunEnd::kSucceeded);
  EXPECT_EQ(Artifact("cut", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
  EXPECT_EQ(Artifact("cut", kBestWeightsFile), Artifact("whole", kBestWeightsFile));
  EXPECT_EQ(Artifact("cut", kTestPredictionsFile), Artifact("whole", kTestPredictionsFile));
  EXPECT_EQ(resumed.epochs.back().valid_metrics, whole.epochs.back().valid_metrics);
  // The test split is the fold.
  const auto folded = data::WithFold(graphs_, options.cross_validation);
  std::string ids;
  const auto test = *(*folded)->split(data::Split::kTest);
  for (const uint32_t graph : test) ids += std::to_string(graph) + "\n";
  std::istringstream lines(Artifact("whole", kTestPredictionsFile));
  std::string line, predicted;
  std::getline(lines, line);
  while (std::getline(lines, line)) predicted += line.substr(0, line.find(',')) + "\n";
  EXPECT_EQ(predicted, ids);
  options.cross_validation.fold = 4;
  ASSERT_TRUE(Run(options, "other", other).ok());
  EXPECT_NE(Artifact("other", kLastWeightsFile), Artifact("whole", kLastWeightsFile));
}

TEST_F(GraphClassificationTest, WhatDoesNotGoWithTheLabelsIsRefused) {
  const struct {
    const char* why;
    std::function<void(spec::TrainOptions&, data::GraphSetSummary&)> change;
    const char* field;
    const char* says;
  } kCases[] = {
      {"several targets", [](auto&, auto& s) { s.num_targets = 2; }, "spec.loss", "has 2 targets; use bce, mse or l1"},
      {"fractions", [](auto&, auto& s) { s.integer_labels = false; }, "spec.loss",
       "the dataset's are fractions in 0..2"},
      {"a class below 0", [](auto&, auto& s) { s.min_label = -1; }, "spec.loss", "the dataset's are -1..2"},
      {"an import of before", [](auto&, auto& s) { s.labels_known = false; }, "spec.dataset",
       "was imported by an older version"},
      {"binary loss, three classes", [](auto& o, auto&) { o.loss = spec::Loss::kBce; }, "spec.loss",
       "bce takes labels 0 and 1, and the dataset's are 0..2"},
      {"binary loss, fractions",
       [](auto& o, auto& s) {
         o.loss = spec::Loss::kBce;
         s.integer_labels = false;
         s.max_label = 1;
       },
       "spec.loss", "the dataset's are fractions in 0..1"},
      {"weights of other classes",
       [](auto& o, auto&) {
         o.class_weights = {1, 2};
       },
       "spec.class_weights", "has 2 weights; the dataset has 3 classes"},
      {"more folds than graphs", [](auto& o, auto& s) { o.cross_validation.folds = s.all.graphs + 1; },
       "spec.cross_validation.folds", "121 is more than the 120 graphs"},
  };
  EXPECT_TRUE(runner_->CheckCompatible(Options(), graphs_->summary(), "spec.").ok());
  for (const auto& c : kCases) {
    spec::TrainOptions options = Options();
    data::GraphSetSummary summary = graphs_->summary();
    c.change(options, summary);
    const absl::Status status = runner_->CheckCompatible(options, summary, "spec.");
    ASSERT_EQ(GetViolations(status).size(), 1U) << c.why << ": " << status;
    EXPECT_EQ(GetViolations(status)[0].field, c.field) << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr(c.says)) << c.why;
  }
}

// The summary of an older import does not say that labels are classes.
TEST_F(GraphClassificationTest, ABinaryLossOnClassesOfAnOlderImportIsRefusedToo) {
  data::GraphSetSummary older = graphs_->summary();
  older.labels_known = false;
  const auto set = OnlyRows(graphs_, EvaluatedRows::kAll, {}, older);
  ASSERT_TRUE(set.ok()) << set.status();
  spec::TrainOptions options = Options();
  options.loss = spec::Loss::kBce;
  options.metrics = {spec::Metric::kAccuracy};
  EXPECT_TRUE(runner_->CheckCompatible(options, data::SummaryOf(*set), "spec.").ok());
  const absl::Status fits =
      runner_->CheckFits({.options = options, .dataset = *set}, "spec.", [] { return true; }).status();
  ASSERT_EQ(GetViolations(fits).size(), 1U) << fits;
  EXPECT_EQ(GetViolations(fits)[0].field, "spec.loss");
  EXPECT_THAT(GetViolations(fits)[0].description, HasSubstr("bce takes labels 0 and 1, and graph "));
}

TEST_F(GraphClassificationTest, AFoldsBudgetHoldsTheLargestGraphOfAll) {
  // The largest graph may be in any split of a fold.
  spec::TrainOptions options = Options();
  options.cross_validation = {.folds = 3};
  options.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = graphs_->summary().all.max_nodes - 1};
  EXPECT_EQ(runner_->CheckCompatible(options, graphs_->summary(), "spec.").code(), absl::StatusCode::kInvalidArgument);
  ++options.batching.max_nodes;
  EXPECT_TRUE(runner_->CheckCompatible(options, graphs_->summary(), "spec.").ok());
}

}  // namespace
}  // namespace permafrost::train
