#include "jobs/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::jobs {
namespace {

JobSpec GoodSpec() {
  JobSpec spec;
  spec.train.dataset = DatasetId("zinc");
  return spec;
}

TEST(JobSpecTest, DefaultsAndBoundsAreValid) {
  const std::function<void(JobSpec&)> kChanges[] = {
      [](JobSpec&) {},
      [](JobSpec& s) { s.train.epochs = 1; },
      [](JobSpec& s) { s.train.epochs = 1'000'000; },
      [](JobSpec& s) { s.train.batch_size = 65'536; },
      [](JobSpec& s) { s.train.model.hidden_channels = 4096; },
      [](JobSpec& s) { s.train.model.num_layers = 64; },
      [](JobSpec& s) { s.train.checkpoint.keep = 100; },
      [](JobSpec& s) { s.train.seed = std::numeric_limits<uint64_t>::max(); },
      [](JobSpec& s) { s.train.loss = nn::Loss::kCrossEntropy; },
      [](JobSpec& s) {
        s.train.cross_validation = {.folds = 3, .fold = 2, .seed = 7};
        s.train.metrics = {nn::Metric::kR2, nn::Metric::kRmse, nn::Metric::kMae};
      },
      [](JobSpec& s) { s.priority = -100; },
      [](JobSpec& s) { s.priority = 100; },
  };
  for (const auto& change : kChanges) {
    JobSpec spec = GoodSpec();
    change(spec);
    Violations violations;
    Validate(spec, violations);
    EXPECT_TRUE(violations.empty()) << violations.ToStatus();
  }
}

TEST(JobSpecTest, EachBadFieldIsNamedWithItsValue) {
  const struct {
    const char* field;
    const char* value;
    std::function<void(JobSpec&)> change;
  } kCases[] = {
      {"spec.dataset", "required", [](JobSpec& s) { s.train.dataset = DatasetId(); }},
      {"spec.dataset", "Zinc", [](JobSpec& s) { s.train.dataset = DatasetId("Zinc"); }},
      {"spec.dataset", "../zinc", [](JobSpec& s) { s.train.dataset = DatasetId("../zinc"); }},
      {"spec.epochs", "0", [](JobSpec& s) { s.train.epochs = 0; }},
      {"spec.epochs", "1000001", [](JobSpec& s) { s.train.epochs = 1'000'001; }},
      {"spec.batch_size", "-1", [](JobSpec& s) { s.train.batch_size = -1; }},
      {"spec.batch_size", "65537", [](JobSpec& s) { s.train.batch_size = 65'537; }},
      {"spec.model.hidden_channels", "4097", [](JobSpec& s) { s.train.model.hidden_channels = 4097; }},
      {"spec.model.hidden_channels", "0", [](JobSpec& s) { s.train.model.hidden_channels = 0; }},
      {"spec.model.num_layers", "65", [](JobSpec& s) { s.train.model.num_layers = 65; }},
      {"spec.optimizer.learning_rate", "0", [](JobSpec& s) { s.train.optimizer.learning_rate = 0; }},
      {"spec.optimizer.learning_rate", "nan",
       [](JobSpec& s) { s.train.optimizer.learning_rate = std::numeric_limits<double>::quiet_NaN(); }},
      {"spec.optimizer.learning_rate", "inf",
       [](JobSpec& s) { s.train.optimizer.learning_rate = std::numeric_limits<double>::infinity(); }},
      {"spec.optimizer.weight_decay", "-0.1", [](JobSpec& s) { s.train.optimizer.weight_decay = -0.1; }},
      {"spec.checkpoint.every_steps", "-1", [](JobSpec& s) { s.train.checkpoint.every_steps = -1; }},
      {"spec.checkpoint.keep", "0", [](JobSpec& s) { s.train.checkpoint.keep = 0; }},
      {"spec.checkpoint.keep", "101", [](JobSpec& s) { s.train.checkpoint.keep = 101; }},
      {"spec.metrics[0]", "accuracy does not measure loss l1; accepted: mae, rmse, r2",
       [](JobSpec& s) { s.train.metrics = {nn::Metric::kAccuracy}; }},
      {"spec.metrics[0]", "r2 does not measure loss cross-entropy; accepted: accuracy, roc_auc, f1_macro",
       [](JobSpec& s) {
         s.train.loss = nn::Loss::kCrossEntropy;
         s.train.metrics = {nn::Metric::kR2};
       }},
      {"spec.metrics[2]", "mae stands there already",
       [](JobSpec& s) {
         s.train.metrics = {nn::Metric::kMae, nn::Metric::kR2, nn::Metric::kMae};
       }},
      {"spec.cross_validation.folds", "2 is outside 3..1000",
       [](JobSpec& s) { s.train.cross_validation = {.folds = 2}; }},
      {"spec.cross_validation.folds", "0 is outside 3..1000",
       [](JobSpec& s) { s.train.cross_validation = {.fold = 1}; }},
      {"spec.cross_validation.fold", "10 is outside 0..9",
       [](JobSpec& s) { s.train.cross_validation = {.folds = 10, .fold = 10}; }},
      {"spec.class_weights", "l1",
       [](JobSpec& s) {
         s.train.class_weights = {1, 2};
       }},
      {"spec.neighbor_sampling", "a set of graphs",
       [](JobSpec& s) {
         s.train.nodes.fan_outs = {10, 10, 10, 10};
       }},
      {"spec.neighbor_sampling", "a set of graphs", [](JobSpec& s) { s.train.nodes.look_ahead = 9; }},
      {"spec.model.heads", "65", [](JobSpec& s) { s.train.model.heads = 65; }},
      {"spec.model.heads", "accepted: for gatv2", [](JobSpec& s) { s.train.model.heads = 2; }},
      {"spec.model.heads", "3 heads do not divide 64",
       [](JobSpec& s) {
         s.train.model.architecture = nn::Architecture::kGatv2;
         s.train.model.heads = 3;
       }},
      {"spec.model.aggregation", "max is given for gine; accepted: for sage",
       [](JobSpec& s) { s.train.model.aggregation = nn::Aggregation::kMax; }},
      {"spec.model.aggregation", "accepted: mean",
       [](JobSpec& s) {
         s.train.model.architecture = nn::Architecture::kSage;
         s.train.model.aggregation = nn::Aggregation::kMax;
         s.train.model.lowering = nn::Lowering::kShapeFree;
       }},
      {"spec.model.input_dropout", "accepted: for one large graph",
       [](JobSpec& s) { s.train.model.input_dropout = 0.5; }},
      {"spec.model.normalize_features", "accepted: for one large graph",
       [](JobSpec& s) { s.train.model.normalize_features = true; }},
      {"spec.model.node_inputs", "accepted: features, degree, constant",
       [](JobSpec& s) { s.train.model.node_inputs = nn::NodeInputs::kLearned; }},
      {"spec.model.edge_inputs", "accepted: for one large graph",
       [](JobSpec& s) { s.train.model.edge_inputs = nn::EdgeInputs::kWeights; }},
      {"spec.patience", "-1", [](JobSpec& s) { s.train.patience = -1; }},
      {"spec.optimizer.momentum", "1.5", [](JobSpec& s) { s.train.optimizer.momentum = 1.5; }},
      {"spec.optimizer.momentum", "adam; accepted: for sgd", [](JobSpec& s) { s.train.optimizer.momentum = 0.5; }},
      {"spec.optimizer.nesterov", "without momentum", [](JobSpec& s) { s.train.optimizer.nesterov = true; }},
      {"spec.optimizer.decay_epochs", "accepted: for step", [](JobSpec& s) { s.train.optimizer.decay_epochs = 3; }},
      {"spec.optimizer.decay_factor", "constant; accepted: for step and plateau",
       [](JobSpec& s) { s.train.optimizer.decay_factor = 0.5; }},
      {"spec.optimizer.decay_factor", "1.5 is not below 1",
       [](JobSpec& s) {
         s.train.optimizer.schedule = nn::Schedule::kPlateau;
         s.train.optimizer.decay_factor = 1.5;
       }},
      {"spec.optimizer.plateau_patience", "accepted: for plateau",
       [](JobSpec& s) { s.train.optimizer.plateau_patience = 3; }},
      {"spec.optimizer.plateau_threshold", "-1 is not a number",
       [](JobSpec& s) {
         s.train.optimizer.schedule = nn::Schedule::kPlateau;
         s.train.optimizer.plateau_threshold = -1;
       }},
      {"spec.optimizer.min_learning_rate", "0.5 is not a number of at least 0 and below learning_rate, 0.001",
       [](JobSpec& s) {
         s.train.optimizer.schedule = nn::Schedule::kPlateau;
         s.train.optimizer.min_learning_rate = 0.5;
       }},
      {"spec.optimizer.weight_decay_of", "without weight_decay",
       [](JobSpec& s) { s.train.optimizer.weight_decay_of = nn::WeightDecayOf::kMatrices; }},
      {"spec.optimizer.ema_decay", "1 is not a number", [](JobSpec& s) { s.train.optimizer.ema_decay = 1; }},
      {"spec.optimizer.accumulate_steps", "0", [](JobSpec& s) { s.train.optimizer.accumulate_steps = 0; }},
      {"spec.init_from", "both a job and a file",
       [](JobSpec& s) {
         s.train.init_from = {JobId("a"), "b"};
       }},
      {"spec.init_from", "neither a job nor a file", [](JobSpec& s) { s.train.init_from.by_name = true; }},
      {"spec.init_from.job", "A", [](JobSpec& s) { s.train.init_from.job = JobId("A"); }},
      {"spec.init_from.weights", "is given for a file",
       [](JobSpec& s) { s.train.init_from = {.file = "b", .weights = train::JobWeights::kLast}; }},
      {"spec.fixed_parameters", "has 1001 entries",
       [](JobSpec& s) { s.train.fixed_parameters.assign(1001, "convs.0"); }},
      {"spec.optimizer.decay_epochs", "0 is not at least 1",
       [](JobSpec& s) { s.train.optimizer.schedule = nn::Schedule::kStep; }},
      {"spec.graph_cache.rungs", "65", [](JobSpec& s) { s.train.graph_cache.rungs = 65; }},
      {"spec.batching", "without a bound",
       [](JobSpec& s) { s.train.batching = {.kind = data::BatchingKind::kBudget}; }},
      {"spec.batching.max_nodes", "random", [](JobSpec& s) { s.train.batching = {.max_nodes = 9}; }},
      {"spec.batching.max_edges", "balanced",
       [](JobSpec& s) { s.train.batching = {.kind = data::BatchingKind::kBalanced, .max_edges = 9}; }},
      {"spec.batching.max_nodes", "-4",
       [](JobSpec& s) { s.train.batching = {.kind = data::BatchingKind::kBudget, .max_nodes = -4}; }},
      {"spec.priority", "101", [](JobSpec& s) { s.priority = 101; }},
      {"spec.priority", "-101", [](JobSpec& s) { s.priority = -101; }},
  };
  for (const auto& c : kCases) {
    JobSpec spec = GoodSpec();
    c.change(spec);
    Violations violations;
    Validate(spec, violations);
    const auto found = GetViolations(violations.ToStatus());
    ASSERT_EQ(found.size(), 1u) << c.field << " " << c.value;
    EXPECT_EQ(found[0].field, c.field);
    EXPECT_THAT(found[0].description, testing::HasSubstr(c.value));
  }
}

TEST(JobSpecTest, GineTakesBinaryLabels) {
  JobSpec spec = GoodSpec();
  spec.train.loss = nn::Loss::kBce;
  spec.train.class_weights = {0.5, 20};
  Violations violations;
  Validate(spec, violations);
  EXPECT_TRUE(violations.empty()) << violations.ToStatus();
}

TEST(JobSpecTest, WhatANodeLevelJobMaySay) {
  using Change = std::function<void(train::TrainOptions&)>;
  const struct {
    const char* why;
    Change change;
    std::vector<std::string> fields;
  } kCases[] = {
      {"the defaults: the whole graph a step", [](auto&) {}, {}},
      {"a fan-out for each of the two layers",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
       },
       {}},
      {"all neighbours",
       [](auto& t) {
         t.nodes.fan_outs = {-1, 65'536};
       },
       {}},
      {"everything at once",
       [](auto& t) {
         t.nodes = {{15, 10}, {20, 20}, true, true, false, 64, false};
         t.class_weights = {1, 0.5, 2};
       },
       {}},
      {"layer by layer",
       [](auto& t) {
         t.nodes = {{15, 10}, {}, false, false, true};
       },
       {}},
      {"regression", [](auto& t) { t.loss = nn::Loss::kL1; }, {}},
      {"a hop too few", [](auto& t) { t.nodes.fan_outs = {15}; }, {"spec.neighbor_sampling.fan_outs"}},
      {"a hop too many in evaluation",
       [](auto& t) {
         t.nodes = {{15, 10}, {15, 10, 5}};
       },
       {"spec.neighbor_sampling.eval_fan_outs"}},
      {"more hops than are sampled",
       [](auto& t) {
         t.model.num_layers = 17;
         t.nodes.fan_outs.assign(17, 2);
       },
       {"spec.neighbor_sampling.fan_outs"}},
      {"no neighbours, and fewer than all",
       [](auto& t) {
         t.nodes.fan_outs = {0, -2};
       },
       {"spec.neighbor_sampling.fan_outs[0]", "spec.neighbor_sampling.fan_outs[1]"}},
      {"too many neighbours in evaluation",
       [](auto& t) {
         t.nodes = {{15, 10}, {15, 65'537}};
       },
       {"spec.neighbor_sampling.eval_fan_outs[1]"}},
      {"two ways to evaluate",
       [](auto& t) {
         t.nodes = {{15, 10}, {20, 20}, false, false, true};
       },
       {"spec.neighbor_sampling.eval_fan_outs"}},
      {"evaluation samples where training does not",
       [](auto& t) {
         t.nodes.eval_fan_outs = {20, 20};
       },
       {"spec.neighbor_sampling.eval_fan_outs"}},
      {"how to draw where nothing is drawn",
       [](auto& t) {
         t.nodes.replace = true;
         t.nodes.weighted = true;
       },
       {"spec.neighbor_sampling.replace", "spec.neighbor_sampling.weighted"}},
      {"times and apart where nothing is drawn",
       [](auto& t) {
         t.nodes.disjoint = true;
         t.nodes.temporal = data::TemporalSampling::kLast;
         t.nodes.seed_time = 0;
         t.nodes.sampler = data::SamplerKind::kLabor;
       },
       {"spec.neighbor_sampling.disjoint", "spec.neighbor_sampling.temporal", "spec.neighbor_sampling.seed_time",
        "spec.neighbor_sampling.sampler"}},
      {"a time that nothing is before",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.seed_time = 0;
       },
       {"spec.neighbor_sampling.seed_time"}},
      {"the latest, drawn again",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = data::TemporalSampling::kLast;
         t.nodes.replace = true;
       },
       {"spec.neighbor_sampling.replace"}},
      {"earlier edges by weight",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = data::TemporalSampling::kUniform;
         t.nodes.weighted = true;
       },
       {"spec.neighbor_sampling.weighted"}},
      {"an evaluation that sees later edges",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = data::TemporalSampling::kUniform;
         t.nodes.layer_wise_evaluation = true;
       },
       {"spec.neighbor_sampling.layer_wise_evaluation"}},
      {"labor, each seed apart",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.sampler = data::SamplerKind::kLabor;
         t.nodes.disjoint = true;
       },
       {"spec.neighbor_sampling.disjoint"}},
      {"one time for links that have their own",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = data::TemporalSampling::kLast;
         t.nodes.seed_time = 3;
         t.loss = nn::Loss::kBce;
         t.links.enabled = true;
       },
       {"spec.neighbor_sampling.seed_time"}},
      {"no batch ahead", [](auto& t) { t.nodes.look_ahead = 0; }, {"spec.neighbor_sampling.look_ahead"}},
      {"too many ahead", [](auto& t) { t.nodes.look_ahead = 65; }, {"spec.neighbor_sampling.look_ahead"}},
      {"a class that weighs nothing",
       [](auto& t) {
         t.class_weights = {1, 0, -1};
       },
       {"spec.class_weights[1]"}},
      {"weights of a loss without classes",
       [](auto& t) {
         t.loss = nn::Loss::kMse;
         t.class_weights = {1, 2};
       },
       {"spec.class_weights"}},
      {"three weights of two labels",
       [](auto& t) {
         t.loss = nn::Loss::kBce;
         t.class_weights = {1, 2, 3};
       },
       {"spec.class_weights"}},
      {"seeds are not composed",
       [](auto& t) { t.batching = {.kind = data::BatchingKind::kBalanced}; },
       {"spec.batching"}},
      {"the whole graph has no budget",
       [](auto& t) { t.batching = {.kind = data::BatchingKind::kBudget, .max_nodes = 9}; },
       {"spec.batching"}},
      {"a budget of sampled blocks",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = data::BatchingKind::kBudget, .max_nodes = 5000, .max_edges = 9000};
       },
       {}},
      {"sampled blocks are not composed",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = data::BatchingKind::kBalanced};
       },
       {"spec.batching.kind"}},
      {"a budget without a bound",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = data::BatchingKind::kBudget};
       },
       {"spec.batching"}},
      {"a bound without a budget",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = data::BatchingKind::kRandom, .max_nodes = 5000};
       },
       {"spec.batching.max_nodes"}},
      {"a budget of labor",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.sampler = data::SamplerKind::kLabor;
         t.batching = {.kind = data::BatchingKind::kBudget, .max_edges = 9000};
       },
       {"spec.neighbor_sampling.sampler"}},
      {"nodes have no folds",
       [](auto& t) { t.cross_validation = {.folds = 10, .fold = 1}; },
       {"spec.cross_validation"}},
      {"several metrics",
       [](auto& t) {
         t.metrics = {nn::Metric::kF1Macro, nn::Metric::kAccuracy};
       },
       {}},
      {"ranks of nodes", [](auto& t) { t.metrics = {nn::Metric::kMrr}; }, {"spec.metrics[0]"}},
      {"links",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = nn::Loss::kBce;
         t.metrics = {nn::Metric::kHitsAt50, nn::Metric::kMrr, nn::Metric::kRocAuc};
       },
       {}},
      {"links by another loss, measured as classes are",
       [](auto& t) {
         t.links.enabled = true;
         t.metrics = {nn::Metric::kAccuracy};
       },
       {"spec.metrics[0]", "spec.loss"}},
      {"links by time, which the dataset divides otherwise",
       [](auto& t) {
         t.links = {.enabled = true, .given = true};
         t.loss = nn::Loss::kBce;
         t.nodes.fan_outs = {5, 5};
         t.nodes.temporal = data::TemporalSampling::kUniform;
       },
       {"spec.neighbor_sampling.temporal"}},
      {"links that leave nothing, and have no negatives",
       [](auto& t) {
         t.links = {
             .enabled = true, .split = {.valid_part = 0.5, .test_part = 0.5}, .negatives = 0, .eval_negatives = 10'001};
         t.loss = nn::Loss::kBce;
       },
       {"spec.link_prediction.test_part", "spec.link_prediction.negatives", "spec.link_prediction.eval_negatives"}},
      {"parts of links that are none",
       [](auto& t) {
         t.links = {.enabled = true, .split = {.valid_part = -0.1, .test_part = std::nan("")}};
         t.loss = nn::Loss::kBce;
       },
       {"spec.link_prediction.valid_part", "spec.link_prediction.test_part"}},
      {"links by samples, of residual layers, with fan-outs for evaluation",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = nn::Loss::kBce;
         t.nodes.fan_outs = t.nodes.eval_fan_outs = {5, 5};
         t.model.residual = true;
       },
       {"spec.neighbor_sampling.eval_fan_outs"}},
      {"layers evaluated one by one, joined",
       [](auto& t) {
         t.nodes.fan_outs = {5, 5};
         t.nodes.layer_wise_evaluation = true;
         t.model.jumping_knowledge = nn::JumpingKnowledge::kMax;
       },
       {}},
      {"features of edges for a model that reads none",
       [](auto& t) { t.model.edge_inputs = nn::EdgeInputs::kWeights; },
       {"spec.model.edge_inputs"}},
      {"no features of edges for a model that needs some",
       [](auto& t) {
         t.model.architecture = nn::Architecture::kGine;
         t.model.edge_inputs = nn::EdgeInputs::kNone;
       },
       {"spec.model.edge_inputs"}},
      {"none for one that may have them",
       [](auto& t) {
         t.model.architecture = nn::Architecture::kGatv2;
         t.model.edge_inputs = nn::EdgeInputs::kNone;
       },
       {}},
      {"links of residual layers, on the whole graph",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = nn::Loss::kBce;
         t.model.residual = true;
       },
       {}},
      {"nothing to pool", [](auto& t) { t.model.pooling = nn::Pooling::kSum; }, {"spec.model.pooling"}},
  };
  for (const auto& c : kCases) {
    JobSpec spec;
    spec.train = train::DefaultOptions(nn::ModelLevel::kNode);
    spec.train.dataset = DatasetId("products");
    c.change(spec.train);
    Violations violations;
    Validate(spec, violations);
    std::vector<std::string> fields;
    for (const FieldViolation& v : GetViolations(violations.ToStatus())) fields.push_back(v.field);
    EXPECT_EQ(fields, c.fields) << c.why << ": " << violations.ToStatus();
  }
}

TEST(JobSpecTest, AllBadFieldsAreToldAtOnce) {
  JobSpec spec;
  spec.train.epochs = -1;
  spec.priority = 500;
  Violations violations;
  Validate(spec, violations);
  EXPECT_EQ(GetViolations(violations.ToStatus()).size(), 3u);
}

}  // namespace
}  // namespace permafrost::jobs
