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

spec::JobSpec GoodSpec() {
  spec::JobSpec spec;
  spec.train.dataset = DatasetId("zinc");
  return spec;
}

TEST(JobSpecTest, DefaultsAndBoundsAreValid) {
  const std::function<void(spec::JobSpec&)> kChanges[] = {
      [](spec::JobSpec&) {},
      [](spec::JobSpec& s) { s.train.epochs = 1; },
      [](spec::JobSpec& s) { s.train.epochs = 1'000'000; },
      [](spec::JobSpec& s) { s.train.batch_size = 65'536; },
      [](spec::JobSpec& s) { s.train.model.hidden_channels = 4096; },
      [](spec::JobSpec& s) { s.train.model.num_layers = 64; },
      [](spec::JobSpec& s) { s.train.checkpoint.keep = 100; },
      [](spec::JobSpec& s) { s.train.seed = std::numeric_limits<uint64_t>::max(); },
      [](spec::JobSpec& s) { s.train.loss = spec::Loss::kCrossEntropy; },
      [](spec::JobSpec& s) {
        s.train.cross_validation = {.folds = 3, .fold = 2, .seed = 7};
        s.train.metrics = {spec::Metric::kR2, spec::Metric::kRmse, spec::Metric::kMae};
      },
      [](spec::JobSpec& s) { s.priority = -100; },
      [](spec::JobSpec& s) { s.priority = 100; },
  };
  for (const auto& change : kChanges) {
    spec::JobSpec spec = GoodSpec();
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
    std::function<void(spec::JobSpec&)> change;
  } kCases[] = {
      {"spec.dataset", "required", [](spec::JobSpec& s) { s.train.dataset = DatasetId(); }},
      {"spec.dataset", "Zinc", [](spec::JobSpec& s) { s.train.dataset = DatasetId("Zinc"); }},
      {"spec.dataset", "../zinc", [](spec::JobSpec& s) { s.train.dataset = DatasetId("../zinc"); }},
      {"spec.epochs", "0", [](spec::JobSpec& s) { s.train.epochs = 0; }},
      {"spec.epochs", "1000001", [](spec::JobSpec& s) { s.train.epochs = 1'000'001; }},
      {"spec.batch_size", "-1", [](spec::JobSpec& s) { s.train.batch_size = -1; }},
      {"spec.batch_size", "65537", [](spec::JobSpec& s) { s.train.batch_size = 65'537; }},
      {"spec.model.hidden_channels", "4097", [](spec::JobSpec& s) { s.train.model.hidden_channels = 4097; }},
      {"spec.model.hidden_channels", "0", [](spec::JobSpec& s) { s.train.model.hidden_channels = 0; }},
      {"spec.model.num_layers", "65", [](spec::JobSpec& s) { s.train.model.num_layers = 65; }},
      {"spec.optimizer.learning_rate", "0", [](spec::JobSpec& s) { s.train.optimizer.learning_rate = 0; }},
      {"spec.optimizer.learning_rate", "nan",
       [](spec::JobSpec& s) { s.train.optimizer.learning_rate = std::numeric_limits<double>::quiet_NaN(); }},
      {"spec.optimizer.learning_rate", "inf",
       [](spec::JobSpec& s) { s.train.optimizer.learning_rate = std::numeric_limits<double>::infinity(); }},
      {"spec.optimizer.weight_decay", "-0.1", [](spec::JobSpec& s) { s.train.optimizer.weight_decay = -0.1; }},
      {"spec.checkpoint.every_steps", "-1", [](spec::JobSpec& s) { s.train.checkpoint.every_steps = -1; }},
      {"spec.checkpoint.keep", "0", [](spec::JobSpec& s) { s.train.checkpoint.keep = 0; }},
      {"spec.checkpoint.keep", "101", [](spec::JobSpec& s) { s.train.checkpoint.keep = 101; }},
      {"spec.metrics[0]", "accuracy does not measure loss l1; accepted: mae, rmse, r2",
       [](spec::JobSpec& s) { s.train.metrics = {spec::Metric::kAccuracy}; }},
      {"spec.metrics[0]", "r2 does not measure loss cross-entropy; accepted: accuracy, roc_auc, f1_macro",
       [](spec::JobSpec& s) {
         s.train.loss = spec::Loss::kCrossEntropy;
         s.train.metrics = {spec::Metric::kR2};
       }},
      {"spec.metrics[2]", "mae stands there already",
       [](spec::JobSpec& s) {
         s.train.metrics = {spec::Metric::kMae, spec::Metric::kR2, spec::Metric::kMae};
       }},
      {"spec.cross_validation.folds", "2 is outside 3..1000",
       [](spec::JobSpec& s) { s.train.cross_validation = {.folds = 2}; }},
      {"spec.cross_validation.folds", "0 is outside 3..1000",
       [](spec::JobSpec& s) { s.train.cross_validation = {.fold = 1}; }},
      {"spec.cross_validation.fold", "10 is outside 0..9",
       [](spec::JobSpec& s) { s.train.cross_validation = {.folds = 10, .fold = 10}; }},
      {"spec.class_weights", "l1",
       [](spec::JobSpec& s) {
         s.train.class_weights = {1, 2};
       }},
      {"spec.neighbor_sampling", "a set of graphs",
       [](spec::JobSpec& s) {
         s.train.nodes.fan_outs = {10, 10, 10, 10};
       }},
      {"spec.neighbor_sampling", "a set of graphs", [](spec::JobSpec& s) { s.train.nodes.look_ahead = 9; }},
      {"spec.model.heads", "65", [](spec::JobSpec& s) { s.train.model.heads = 65; }},
      {"spec.model.heads", "accepted: for gatv2", [](spec::JobSpec& s) { s.train.model.heads = 2; }},
      {"spec.model.heads", "3 heads do not divide 64",
       [](spec::JobSpec& s) {
         s.train.model.architecture = spec::Architecture::kGatv2;
         s.train.model.heads = 3;
       }},
      {"spec.model.aggregation", "max is given for gine; accepted: for sage",
       [](spec::JobSpec& s) { s.train.model.aggregation = spec::Aggregation::kMax; }},
      {"spec.model.aggregation", "accepted: mean",
       [](spec::JobSpec& s) {
         s.train.model.architecture = spec::Architecture::kSage;
         s.train.model.aggregation = spec::Aggregation::kMax;
         s.train.model.lowering = spec::Lowering::kShapeFree;
       }},
      {"spec.model.input_dropout", "accepted: for one large graph",
       [](spec::JobSpec& s) { s.train.model.input_dropout = 0.5; }},
      {"spec.model.normalize_features", "accepted: for one large graph",
       [](spec::JobSpec& s) { s.train.model.normalize_features = true; }},
      {"spec.model.node_inputs", "accepted: features, degree, constant",
       [](spec::JobSpec& s) { s.train.model.node_inputs = spec::NodeInputs::kLearned; }},
      {"spec.model.edge_inputs", "accepted: for one large graph",
       [](spec::JobSpec& s) { s.train.model.edge_inputs = spec::EdgeInputs::kWeights; }},
      {"spec.patience", "-1", [](spec::JobSpec& s) { s.train.patience = -1; }},
      {"spec.optimizer.momentum", "1.5",
       [](spec::JobSpec& s) {
         s.train.optimizer.algorithm = spec::OptimizerAlgorithm::kSgd;
         s.train.optimizer.momentum = 1.5;
       }},
      {"spec.optimizer.momentum", "adam; accepted: for sgd",
       [](spec::JobSpec& s) { s.train.optimizer.momentum = 0.5; }},
      {"spec.optimizer.nesterov", "without momentum", [](spec::JobSpec& s) { s.train.optimizer.nesterov = true; }},
      {"spec.optimizer.decay_epochs", "accepted: for step",
       [](spec::JobSpec& s) { s.train.optimizer.decay_epochs = 3; }},
      {"spec.optimizer.decay_factor", "constant; accepted: for step and plateau",
       [](spec::JobSpec& s) { s.train.optimizer.decay_factor = 0.5; }},
      {"spec.optimizer.decay_factor", "1.5 is not below 1",
       [](spec::JobSpec& s) {
         s.train.optimizer.schedule = spec::Schedule::kPlateau;
         s.train.optimizer.decay_factor = 1.5;
       }},
      {"spec.optimizer.plateau_patience", "accepted: for plateau",
       [](spec::JobSpec& s) { s.train.optimizer.plateau_patience = 3; }},
      {"spec.optimizer.plateau_threshold", "-1 is not a number",
       [](spec::JobSpec& s) {
         s.train.optimizer.schedule = spec::Schedule::kPlateau;
         s.train.optimizer.plateau_threshold = -1;
       }},
      {"spec.optimizer.min_learning_rate", "0.5 is not a number of at least 0 and below learning_rate, 0.001",
       [](spec::JobSpec& s) {
         s.train.optimizer.schedule = spec::Schedule::kPlateau;
         s.train.optimizer.min_learning_rate = 0.5;
       }},
      {"spec.optimizer.weight_decay_of", "without weight_decay",
       [](spec::JobSpec& s) { s.train.optimizer.weight_decay_of = spec::WeightDecayOf::kMatrices; }},
      {"spec.optimizer.ema_decay", "1 is not a number", [](spec::JobSpec& s) { s.train.optimizer.ema_decay = 1; }},
      {"spec.optimizer.accumulate_steps", "0", [](spec::JobSpec& s) { s.train.optimizer.accumulate_steps = 0; }},
      {"spec.init_from", "both a job and a file",
       [](spec::JobSpec& s) {
         s.train.init_from = {JobId("a"), "b"};
       }},
      {"spec.init_from", "neither a job nor a file", [](spec::JobSpec& s) { s.train.init_from.by_name = true; }},
      {"spec.init_from.job", "A", [](spec::JobSpec& s) { s.train.init_from.job = JobId("A"); }},
      {"spec.init_from.weights", "is given for a file",
       [](spec::JobSpec& s) { s.train.init_from = {.file = "b", .weights = spec::JobWeights::kLast}; }},
      {"spec.fixed_parameters", "has 1001 entries",
       [](spec::JobSpec& s) { s.train.fixed_parameters.assign(1001, "convs.0"); }},
      {"spec.optimizer.decay_epochs", "0 is not at least 1",
       [](spec::JobSpec& s) { s.train.optimizer.schedule = spec::Schedule::kStep; }},
      {"spec.graph_cache.rungs", "65", [](spec::JobSpec& s) { s.train.graph_cache.rungs = 65; }},
      {"spec.batching", "without a bound",
       [](spec::JobSpec& s) { s.train.batching = {.kind = spec::BatchingKind::kBudget}; }},
      {"spec.batching.max_nodes", "random", [](spec::JobSpec& s) { s.train.batching = {.max_nodes = 9}; }},
      {"spec.batching.max_edges", "balanced",
       [](spec::JobSpec& s) { s.train.batching = {.kind = spec::BatchingKind::kBalanced, .max_edges = 9}; }},
      {"spec.batching.max_nodes", "-4",
       [](spec::JobSpec& s) { s.train.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = -4}; }},
      {"spec.priority", "101", [](spec::JobSpec& s) { s.priority = 101; }},
      {"spec.priority", "-101", [](spec::JobSpec& s) { s.priority = -101; }},
  };
  for (const auto& c : kCases) {
    spec::JobSpec spec = GoodSpec();
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
  spec::JobSpec spec = GoodSpec();
  spec.train.loss = spec::Loss::kBce;
  spec.train.class_weights = {0.5, 20};
  Violations violations;
  Validate(spec, violations);
  EXPECT_TRUE(violations.empty()) << violations.ToStatus();
}

TEST(JobSpecTest, WhatANodeLevelJobMaySay) {
  using Change = std::function<void(spec::TrainOptions&)>;
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
      {"regression", [](auto& t) { t.loss = spec::Loss::kL1; }, {}},
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
         t.nodes.temporal = spec::TemporalSampling::kLast;
         t.nodes.seed_time = 0;
         t.nodes.sampler = spec::SamplerKind::kLabor;
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
         t.nodes.temporal = spec::TemporalSampling::kLast;
         t.nodes.replace = true;
       },
       {"spec.neighbor_sampling.replace"}},
      {"earlier edges by weight",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = spec::TemporalSampling::kUniform;
         t.nodes.weighted = true;
       },
       {"spec.neighbor_sampling.weighted"}},
      {"an evaluation that sees later edges",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = spec::TemporalSampling::kUniform;
         t.nodes.layer_wise_evaluation = true;
       },
       {"spec.neighbor_sampling.layer_wise_evaluation"}},
      {"labor, each seed apart",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.sampler = spec::SamplerKind::kLabor;
         t.nodes.disjoint = true;
       },
       {"spec.neighbor_sampling.disjoint"}},
      {"one time for links that have their own",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.temporal = spec::TemporalSampling::kLast;
         t.nodes.seed_time = 3;
         t.loss = spec::Loss::kBce;
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
         t.loss = spec::Loss::kMse;
         t.class_weights = {1, 2};
       },
       {"spec.class_weights"}},
      {"three weights of two labels",
       [](auto& t) {
         t.loss = spec::Loss::kBce;
         t.class_weights = {1, 2, 3};
       },
       {"spec.class_weights"}},
      {"seeds are not composed",
       [](auto& t) { t.batching = {.kind = spec::BatchingKind::kBalanced}; },
       {"spec.batching"}},
      {"the whole graph has no budget",
       [](auto& t) { t.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 9}; },
       {"spec.batching"}},
      {"a budget of sampled blocks",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 5000, .max_edges = 9000};
       },
       {}},
      {"sampled blocks are not composed",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = spec::BatchingKind::kBalanced};
       },
       {"spec.batching.kind"}},
      {"a budget without a bound",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = spec::BatchingKind::kBudget};
       },
       {"spec.batching"}},
      {"a bound without a budget",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.batching = {.kind = spec::BatchingKind::kRandom, .max_nodes = 5000};
       },
       {"spec.batching.max_nodes"}},
      {"a budget of labor",
       [](auto& t) {
         t.nodes.fan_outs = {15, 10};
         t.nodes.sampler = spec::SamplerKind::kLabor;
         t.batching = {.kind = spec::BatchingKind::kBudget, .max_edges = 9000};
       },
       {"spec.neighbor_sampling.sampler"}},
      {"nodes have no folds",
       [](auto& t) { t.cross_validation = {.folds = 10, .fold = 1}; },
       {"spec.cross_validation"}},
      {"several metrics",
       [](auto& t) {
         t.metrics = {spec::Metric::kF1Macro, spec::Metric::kAccuracy};
       },
       {}},
      {"ranks of nodes", [](auto& t) { t.metrics = {spec::Metric::kMrr}; }, {"spec.metrics[0]"}},
      {"links",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = spec::Loss::kBce;
         t.metrics = {spec::Metric::kHitsAt50, spec::Metric::kMrr, spec::Metric::kRocAuc};
       },
       {}},
      {"links by another loss, measured as classes are",
       [](auto& t) {
         t.links.enabled = true;
         t.metrics = {spec::Metric::kAccuracy};
       },
       {"spec.metrics[0]", "spec.loss"}},
      {"links by time, which the dataset divides otherwise",
       [](auto& t) {
         t.links = {.enabled = true, .given = true};
         t.loss = spec::Loss::kBce;
         t.nodes.fan_outs = {5, 5};
         t.nodes.temporal = spec::TemporalSampling::kUniform;
       },
       {"spec.neighbor_sampling.temporal"}},
      {"links that leave nothing, and have no negatives",
       [](auto& t) {
         t.links = {
             .enabled = true, .split = {.valid_part = 0.5, .test_part = 0.5}, .negatives = 0, .eval_negatives = 10'001};
         t.loss = spec::Loss::kBce;
       },
       {"spec.link_prediction.test_part", "spec.link_prediction.negatives", "spec.link_prediction.eval_negatives"}},
      {"parts of links that are none",
       [](auto& t) {
         t.links = {.enabled = true, .split = {.valid_part = -0.1, .test_part = std::nan("")}};
         t.loss = spec::Loss::kBce;
       },
       {"spec.link_prediction.valid_part", "spec.link_prediction.test_part"}},
      {"links by samples, of residual layers, with fan-outs for evaluation",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = spec::Loss::kBce;
         t.nodes.fan_outs = t.nodes.eval_fan_outs = {5, 5};
         t.model.residual = true;
       },
       {"spec.neighbor_sampling.eval_fan_outs"}},
      {"layers evaluated one by one, joined",
       [](auto& t) {
         t.nodes.fan_outs = {5, 5};
         t.nodes.layer_wise_evaluation = true;
         t.model.jumping_knowledge = spec::JumpingKnowledge::kMax;
       },
       {}},
      {"features of edges for a model that reads none",
       [](auto& t) { t.model.edge_inputs = spec::EdgeInputs::kWeights; },
       {"spec.model.edge_inputs"}},
      {"no features of edges for a model that needs some",
       [](auto& t) {
         t.model.architecture = spec::Architecture::kGine;
         t.model.edge_inputs = spec::EdgeInputs::kNone;
       },
       {"spec.model.edge_inputs"}},
      {"none for one that may have them",
       [](auto& t) {
         t.model.architecture = spec::Architecture::kGatv2;
         t.model.edge_inputs = spec::EdgeInputs::kNone;
       },
       {}},
      {"links of residual layers, on the whole graph",
       [](auto& t) {
         t.links.enabled = true;
         t.loss = spec::Loss::kBce;
         t.model.residual = true;
       },
       {}},
      {"nothing to pool", [](auto& t) { t.model.pooling = spec::Pooling::kSum; }, {"spec.model.pooling"}},
  };
  for (const auto& c : kCases) {
    spec::JobSpec spec;
    spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
    spec.train.dataset = DatasetId("products");
    c.change(spec.train);
    Violations violations;
    Validate(spec, violations);
    std::vector<std::string> fields;
    for (const FieldViolation& v : GetViolations(violations.ToStatus())) fields.push_back(v.field);
    EXPECT_THAT(fields, testing::UnorderedElementsAreArray(c.fields)) << c.why << ": " << violations.ToStatus();
  }
}

TEST(JobSpecTest, AllBadFieldsAreToldAtOnce) {
  spec::JobSpec spec;
  spec.train.epochs = -1;
  spec.priority = 500;
  Violations violations;
  Validate(spec, violations);
  EXPECT_EQ(GetViolations(violations.ToStatus()).size(), 3u);
}

}  // namespace
}  // namespace permafrost::jobs
