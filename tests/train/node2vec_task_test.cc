// Tests node2vec jobs: what they learn, step by step and run by run.
#include "train/tasks/node2vec_task.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "graph_runner.h"
#include "nn/safetensors.h"
#include "recorder.h"
#include "step_cases.h"
#include "tiny_graphs.h"
#include "train/tasks/evaluated_rows.h"

namespace permafrost::train {
namespace {

using spec::Policy;
using testing::HasSubstr;

class Node2VecTest : public GraphRunnerTest {
 protected:
  Node2VecTest() : GraphRunnerTest({.named = true}) {}
  std::string Last(const std::string& job) { return Artifact(job, kLastWeightsFile); }
  RowsEvaluation Evaluated(const spec::TrainOptions& options, const std::string& job, EvaluatedRows rows) {
    const auto evaluated = runner_->EvaluateWeights({.options = options,
                                                     .dataset = graph_,
                                                     .trained_on = std::nullopt,
                                                     .rows = rows,
                                                     .weights = Last(job),
                                                     .source = "jobs/" + job,
                                                     .predictions = true},
                                                    [](int64_t, int64_t) { return true; });
    EXPECT_TRUE(evaluated.ok()) << evaluated.status();
    return evaluated.ok() ? *evaluated : RowsEvaluation();
  }
};

TEST_F(Node2VecTest, LearnsWhichNodesAreNear) {
  spec::TrainOptions options = WalkJob();
  options.epochs = 12;
  options.optimizer.learning_rate = 0.02;
  Recorder context;
  const auto outcome = Run(options, "job", context);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(context.epochs.size(), 12U);
  EXPECT_LT(context.epochs.back().train_loss, 0.6 * context.epochs.front().train_loss);
  EXPECT_LT(context.epochs.back().valid_loss, 0.7 * context.epochs.front().valid_loss);
  EXPECT_GT(context.epochs.back().valid_metric, context.epochs.front().valid_metric + 0.1) << "ROC-AUC of the pairs";
  EXPECT_EQ(outcome->result->num_parameters, 400 * 16);
  EXPECT_EQ(context.progress.graphs, 12 * 400) << "each node is a seed once an epoch";
  const graphcache::ModeStats& steps = context.cache.of(Mode::kTrain);
  EXPECT_EQ(steps.entries, 1) << "one executable serves every batch, the last one of an epoch too";
  EXPECT_EQ(steps.eager_steps, 0) << context.log;

  // The table names the test split's nodes, and has the same rows as the weights.
  std::istringstream csv(Artifact("job", kTestPredictionsFile));
  std::string line;
  std::getline(csv, line);
  EXPECT_THAT(line, testing::StartsWith("node,embedding_0,embedding_1,"));
  std::getline(csv, line);
  EXPECT_THAT(line, testing::StartsWith("\"the 4rd, \"\"x\"\"\","));
  const RowsEvaluation all = Evaluated(options, "job", EvaluatedRows::kAll);
  EXPECT_EQ(all.rows, 400);
  EXPECT_EQ(std::ranges::count(all.predictions, '\n'), 401);
  EXPECT_TRUE(std::isfinite(all.loss));
  const RowsEvaluation valid = Evaluated(options, "job", EvaluatedRows::kValid);
  EXPECT_EQ(valid.rows, 80);
  EXPECT_EQ(valid.loss, context.epochs.back().valid_loss) << "the walks of an evaluation are the same each time";
  EXPECT_EQ(valid.metrics, context.epochs.back().valid_metrics);
}

TEST_F(Node2VecTest, ARunThatWasStoppedEndsWithTheSameBitsWhateverTheThreads) {
  spec::TrainOptions biased = WalkJob();
  biased.node2vec.p = 0.5;
  biased.node2vec.q = 4;
  spec::TrainOptions dense = WalkJob();
  dense.optimizer.algorithm = spec::OptimizerAlgorithm::kAdam;
  int number = 0;
  for (const spec::TrainOptions& options : {WalkJob(), biased, dense}) {
    const std::string whole = "whole" + std::to_string(number), parts = "parts" + std::to_string(number++);
    Recorder context;
    ASSERT_TRUE(Run(options, whole, context).ok());
    for (const int64_t stop : {3, 7, 11, 20}) {
      Recorder part;
      part.stop = [stop](const Progress& p) { return p.step >= stop ? StopRequest::kDrain : StopRequest::kNone; };
      ASSERT_TRUE(Run(options, parts, part).ok());
    }
    Recorder rest;
    ASSERT_TRUE(Run(options, parts, rest).ok());
    EXPECT_EQ(Last(parts), Last(whole));

    const auto one = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 1});
    Recorder alone;
    ASSERT_TRUE(
        one->Run({.options = options, .dataset = graph_, .job_directory = dir_.path() / "alone" / whole}, alone).ok());
    EXPECT_EQ(Artifact("alone/" + whole, kLastWeightsFile), Last(whole)) << "one thread";
  }
}

TEST_F(Node2VecTest, EveryPolicyGivesTheSameBits) {
  std::string first;
  for (const Policy policy : {Policy::kFreeze, Policy::kNever, Policy::kAlways}) {
    spec::TrainOptions options = WalkJob();
    options.graph_cache.policy = policy;
    const std::string job(spec::kPolicyNames.Name(policy));
    Recorder context;
    ASSERT_TRUE(Run(options, job, context).ok());
    if (first.empty()) first = Last(job);
    EXPECT_EQ(Last(job), first) << job;
  }
}

TEST_F(Node2VecTest, GoesOnFromGivenWeightsAndRefusesThoseOfOtherNodes) {
  spec::TrainOptions options = WalkJob();
  Recorder context;
  ASSERT_TRUE(Run(options, "job", context).ok());
  const data::ImportedSummary own = graph_->summary();
  data::GraphSummary other = graph_->summary();
  other.nodes = 399;
  options.init_from.job = JobId("job");
  EXPECT_TRUE(runner_->CheckInitialWeights(options, own, Last("job"), "").ok());
  EXPECT_THAT(runner_->CheckInitialWeights(options, other, Last("job"), "").message(), HasSubstr("embedding.weight"));
  const auto refused = runner_->EvaluateWeights({.options = WalkJob(),
                                                 .dataset = graph_,
                                                 .trained_on = other,
                                                 .rows = EvaluatedRows::kAll,
                                                 .weights = Last("job"),
                                                 .source = "jobs/job",
                                                 .predictions = false},
                                                [](int64_t, int64_t) { return true; });
  EXPECT_THAT(refused.status().message(), HasSubstr("it has 400 nodes, and the embeddings are those of 399"));
}

TEST_F(Node2VecTest, EmbeddingsAreNotEvaluatedOnASetOfGraphs) {
  Recorder context;
  ASSERT_TRUE(Run(WalkJob(), "job", context).ok());
  const auto refused = runner_->EvaluateWeights({.options = WalkJob(),
                                                 .dataset = ImportTinyGraphs(dir_.path() / "set", 20),
                                                 .trained_on = graph_->summary(),
                                                 .rows = EvaluatedRows::kAll,
                                                 .weights = Last("job"),
                                                 .source = "jobs/job",
                                                 .predictions = false},
                                                [](int64_t, int64_t) { return true; });
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(),
              HasSubstr("it is a set of graphs, and the embeddings are those of 400 nodes"));
}

TEST_F(Node2VecTest, WhatTheTestSplitAndPlainOperatorsTakeIsCounted) {
  const auto needs = [](const spec::TrainOptions& options, const data::GraphSummary& graph, uint64_t most) {
    return !CheckNode2Vec(options, graph, {most}, "spec.").ok();
  };
  data::GraphSummary graph = graph_->summary();
  graph.nodes = 1'000'000;
  graph.split_nodes = {0, 0, 0};
  spec::TrainOptions options = WalkJob();
  uint64_t enough = 1 << 20;
  while (needs(options, graph, enough)) enough += enough / 8;
  graph.split_nodes[2] = 900'000;
  EXPECT_TRUE(needs(options, graph, enough)) << "embeddings of the test split";
  graph.split_nodes[2] = 0;
  graph.nodes = 10'000;
  options.node2vec.walk_length = 400;
  options.model.lowering = spec::Lowering::kPlain;
  enough = 1 << 20;
  while (needs(options, graph, enough)) enough += enough / 8;
  options.model.lowering = spec::Lowering::kAuto;
  EXPECT_FALSE(needs(options, graph, enough / 2)) << "scores of all pairs";
}

TEST_F(Node2VecTest, WhatItCannotLearnFromIsRefused) {
  data::GraphSummary summary = graph_->summary();
  EXPECT_TRUE(CheckNode2Vec(WalkJob(), summary, kNoLimits, "spec.").ok());
  spec::TrainOptions large = WalkJob();
  large.node2vec.walks_per_node = 1000;
  EXPECT_THAT(CheckNode2Vec(large, summary, {10'000'000}, "spec.").message(), HasSubstr("spec.model: needs about"));
  summary.edges = 0;
  EXPECT_THAT(CheckNode2Vec(WalkJob(), summary, kNoLimits, "spec.").message(),
              HasSubstr("spec.dataset: it has no edges, which walks go along"));
  EXPECT_THAT(CheckNode2Vec(WalkJob(), data::GraphSetSummary(), kNoLimits, "spec.").message(),
              HasSubstr("the dataset is a set of graphs"));
}

TEST(Node2VecOptions, WhatMeansNothingIsRefusedByItsField) {
  const struct {
    const char* want;
    void (*change)(spec::TrainOptions&);
  } kCases[] = {
      {"node2vec.walk_length: 1 is outside 2..1000", [](spec::TrainOptions& o) { o.node2vec.walk_length = 1; }},
      {"node2vec.context_size: 9 is outside 2..8, the nodes of a walk",
       [](spec::TrainOptions& o) { o.node2vec.context_size = 9; }},
      {"node2vec.walks_per_node: 0 is outside 1..1000", [](spec::TrainOptions& o) { o.node2vec.walks_per_node = 0; }},
      {"node2vec.num_negative_samples: 101 is outside 1..100",
       [](spec::TrainOptions& o) { o.node2vec.num_negative_samples = 101; }},
      {"node2vec.p: 0 is not a finite number above 0", [](spec::TrainOptions& o) { o.node2vec.p = 0; }},
      {"node2vec.q: nan is not a finite number above 0", [](spec::TrainOptions& o) { o.node2vec.q = std::nan(""); }},
      {"model.num_layers: is given for node2vec, which has no layers",
       [](spec::TrainOptions& o) { o.model.num_layers = 3; }},
      {"model.dropout: is given for node2vec, which has no layers",
       [](spec::TrainOptions& o) { o.model.dropout = 0.5; }},
      {"model.norm: is given for node2vec", [](spec::TrainOptions& o) { o.model.norm = spec::Norm::kLayer; }},
      {"model.residual: is given for node2vec", [](spec::TrainOptions& o) { o.model.residual = true; }},
      {"model.jumping_knowledge: is given for node2vec",
       [](spec::TrainOptions& o) { o.model.jumping_knowledge = spec::JumpingKnowledge::kCat; }},
      {"model.heads: is given for node2vec, which has none", [](spec::TrainOptions& o) { o.model.heads = 2; }},
      {"model.aggregation: max is given for node2vec",
       [](spec::TrainOptions& o) { o.model.aggregation = spec::Aggregation::kMax; }},
      {"model.input_dropout: is given for node2vec, which reads no features",
       [](spec::TrainOptions& o) { o.model.input_dropout = 0.5; }},
      {"model.normalize_features: is given for node2vec",
       [](spec::TrainOptions& o) { o.model.normalize_features = true; }},
      {"model.node_inputs: is given for node2vec",
       [](spec::TrainOptions& o) { o.model.node_inputs = spec::NodeInputs::kDegree; }},
      {"model.edge_inputs: features is given for node2vec",
       [](spec::TrainOptions& o) { o.model.edge_inputs = spec::EdgeInputs::kFeatures; }},
      {"model.precision: is given for node2vec",
       [](spec::TrainOptions& o) { o.model.precision = spec::Precision::kBfloat16; }},
      {"neighbor_sampling.fan_outs: is given for node2vec, which walks in place of drawing neighbours",
       [](spec::TrainOptions& o) { o.nodes.fan_outs = {5}; }},
      {"neighbor_sampling.look_ahead: is given for node2vec", [](spec::TrainOptions& o) { o.nodes.look_ahead = 3; }},
      {"link_prediction: is given for node2vec", [](spec::TrainOptions& o) { o.links.enabled = true; }},
      {"class_weights: is given for node2vec, which reads no labels",
       [](spec::TrainOptions& o) {
         o.class_weights = {1, 2};
       }},
      {"loss: l1 is no loss of node2vec; accepted: bce", [](spec::TrainOptions& o) { o.loss = spec::Loss::kL1; }},
      {"metrics[0]: accuracy does not measure pairs of walks; accepted: roc_auc, average_precision",
       [](spec::TrainOptions& o) { o.metrics = {spec::Metric::kAccuracy}; }},
      {"optimizer.weight_decay: is given for sparse_adam; accepted: for adam, adamw, sgd",
       [](spec::TrainOptions& o) { o.optimizer.weight_decay = 0.1; }},
      {"optimizer.max_grad_norm: is given for sparse_adam",
       [](spec::TrainOptions& o) { o.optimizer.max_grad_norm = 1; }},
      {"optimizer.ema_decay: is given for sparse_adam", [](spec::TrainOptions& o) { o.optimizer.ema_decay = 0.9; }},
      {"optimizer.accumulate_steps: is given for sparse_adam",
       [](spec::TrainOptions& o) { o.optimizer.accumulate_steps = 2; }},
      {"optimizer.algorithm: sparse_adam is given for gcn, whose gradients are not of few rows; accepted: adam, adamw, "
       "sgd",
       [](spec::TrainOptions& o) {
         o = NodeJob(spec::Architecture::kGcn);
         o.optimizer.algorithm = spec::OptimizerAlgorithm::kSparseAdam;
       }},
  };
  const auto text_of = [](spec::TrainOptions options) {
    options.dataset = DatasetId("cora");
    Violations violations;
    Validate(options, "spec.", violations);
    return std::string(violations.ToStatus().message());
  };
  EXPECT_EQ(text_of(WalkJob()), "");
  for (const auto& c : kCases) {
    spec::TrainOptions options = WalkJob();
    c.change(options);
    EXPECT_THAT(text_of(options), HasSubstr(std::string("spec.") + c.want));
  }
}

}  // namespace
}  // namespace permafrost::train
