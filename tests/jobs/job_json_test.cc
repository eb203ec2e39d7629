#include "jobs/job_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/status.h"

namespace permafrost::jobs {
namespace {

absl::StatusOr<spec::JobSpec> SpecOf(const std::string& text) {
  PF_ASSIGN_OR_RETURN(const SpecColumn column, SpecFromJson(text));
  return column.spec;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(JobJsonTest, DoublesRoundTripBitByBit) {
  const double kValues[] = {0.0,
                            -0.0,
                            0.1,
                            1.0 / 3,
                            -2.5e-308,
                            std::numeric_limits<double>::denorm_min(),
                            std::numeric_limits<double>::max(),
                            std::nextafter(1.0, 2.0),
                            123456789012345678.0,
                            kInfinity,
                            -kInfinity};
  for (const double value : kValues) {
    train::EpochMetrics metrics;
    metrics.valid_metric = value;
    const auto back = EpochFromJson(ToJson(metrics));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(std::bit_cast<uint64_t>(back->valid_metric), std::bit_cast<uint64_t>(value)) << value;
  }
  train::EpochMetrics metrics;
  metrics.train_loss = std::numeric_limits<double>::quiet_NaN();
  const auto back = EpochFromJson(ToJson(metrics));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(back->train_loss));
}

TEST(JobJsonTest, AnEpochKeepsWhatTheCacheDidAndAnOlderOneHasNone) {
  train::EpochMetrics metrics{.epoch = 3, .valid_metrics = {0.5}};
  metrics.steps = 9;
  metrics.exact_hits = 10;
  metrics.padded_hits = 11;
  metrics.eager_steps = 12;
  metrics.captures = 13;
  metrics.nodes = 14;
  metrics.edges = 15;
  metrics.padding_nodes = 16;
  metrics.padding_edges = 17;
  metrics.cache_bytes = 18;
  const auto back = EpochFromJson(ToJson(metrics));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->steps, 9);
  EXPECT_EQ(back->exact_hits, 10);
  EXPECT_EQ(back->padded_hits, 11);
  EXPECT_EQ(back->eager_steps, 12);
  EXPECT_EQ(back->captures, 13);
  EXPECT_EQ(back->nodes, 14);
  EXPECT_EQ(back->edges, 15);
  EXPECT_EQ(back->padding_nodes, 16);
  EXPECT_EQ(back->padding_edges, 17);
  EXPECT_EQ(back->cache_bytes, 18);
  const auto older = EpochFromJson(R"({"epoch": 3, "train_loss": 0.25, "valid_metrics": [0.5]})");
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->train_loss, 0.25);
  EXPECT_EQ(older->steps, 0);
  EXPECT_EQ(older->cache_bytes, 0);
}

TEST(JobJsonTest, EveryFieldOfASpecRoundTrips) {
  spec::JobSpec spec;
  spec.train.dataset = DatasetId("zinc-12k");
  spec.train.model = {.architecture = spec::Architecture::kGine,
                      .hidden_channels = 17,
                      .num_layers = 3,
                      .pooling = spec::Pooling::kSum,
                      .dropout = 0.25,
                      .virtual_node = true,
                      .lowering = spec::Lowering::kShapeFree,
                      .precision = spec::Precision::kBfloat16};
  spec.train.optimizer = {spec::OptimizerAlgorithm::kAdamW,
                          0.1 + 0.2,
                          1e-17,
                          2.5,
                          spec::Schedule::kCosine,
                          100,
                          0.9,
                          true,
                          7,
                          0.3,
                          5,
                          0.1 + 0.2,
                          1e-19,
                          spec::WeightDecayOf::kFirstLayer,
                          0.999,
                          8};
  spec.train.loss = spec::Loss::kMse;
  spec.train.epochs = 7;
  spec.train.patience = 3;
  spec.train.batch_size = 9;
  spec.train.seed = std::numeric_limits<uint64_t>::max();
  spec.train.checkpoint = {11, 5};
  spec.train.graph_cache = {
      spec::Policy::kClearPerStep, 12, spec::OnMiss::kReject, spec::Shapes::kLadder, 5, 7, true, 9};
  spec.train.batching = {spec::BatchingKind::kBudget, 700, 1500};
  spec.train.metrics = {spec::Metric::kR2, spec::Metric::kMae};
  spec.train.init_from = {JobId("first"), "/data/w.safetensors", spec::JobWeights::kLast, true};
  spec.train.fixed_parameters = {"convs.0", "head"};
  spec.train.cross_validation = {.folds = 10, .fold = 9, .seed = std::numeric_limits<uint64_t>::max()};
  spec.priority = -42;
  const auto back = SpecOf(ToJson(SpecColumn{.spec = spec, .dataset_uid = {}}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, spec);
}

TEST(JobJsonTest, EveryFieldOfANodeLevelSpecRoundTrips) {
  spec::JobSpec spec;
  spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  spec.train.links = {.enabled = true,
                      .given = true,
                      .split = {.valid_part = 0.2, .test_part = 0.3, .seed = std::numeric_limits<uint64_t>::max()},
                      .negatives = 4,
                      .eval_negatives = 50,
                      .sampling = spec::NegativeSampling::kDegree,
                      .score = spec::LinkScore::kMlp};
  spec.train.node2vec = {
      .walk_length = 9, .context_size = 3, .walks_per_node = 2, .p = 0.5, .q = 8, .num_negative_samples = 7};
  spec.train.model = {.architecture = spec::Architecture::kGatv2,
                      .level = spec::ModelLevel::kNode,
                      .hidden_channels = 24,
                      .num_layers = 3,
                      .dropout = 0.5,
                      .input_dropout = 0.25,
                      .heads = 8,
                      .aggregation = spec::Aggregation::kMax,
                      .norm = spec::Norm::kLayer,
                      .residual = true,
                      .jumping_knowledge = spec::JumpingKnowledge::kMax,
                      .virtual_node = true,
                      .normalize_features = true,
                      .node_inputs = spec::NodeInputs::kDegree,
                      .edge_inputs = spec::EdgeInputs::kWeights,
                      .own_degree_columns = true};
  spec.train.nodes.sampler = spec::SamplerKind::kLabor;
  spec.train.nodes.disjoint = true;
  spec.train.nodes.temporal = spec::TemporalSampling::kLast;
  spec.train.nodes.seed_time = std::numeric_limits<int64_t>::min();
  spec.train.dataset = DatasetId("products");
  spec.train.loss = spec::Loss::kBce;
  spec.train.class_weights = {0.1, 2.0 / 3};
  spec.train.nodes = {{15, -1}, {20, 10}, true, true, true, 63, false};
  const auto back = SpecOf(ToJson(SpecColumn{.spec = spec, .dataset_uid = {}}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, spec);
}

// Weights of such jobs are of models that read no features of edges, whatever the graph has.
TEST(JobJsonTest, ASpecOfBeforeFeaturesOfEdgesReadsNone) {
  const auto inputs = [](const char* model) {
    const auto spec = SpecOf(std::string(R"({"dataset": "a", "model": )") + model + "}");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->train.model.edge_inputs;
  };
  EXPECT_EQ(inputs(R"({"architecture": "gatv2", "level": "node"})"), spec::EdgeInputs::kNone);
  EXPECT_EQ(inputs(R"({"architecture": "gatv2", "level": "graph"})"), spec::EdgeInputs::kAuto);
  EXPECT_EQ(inputs(R"({"architecture": "gatv2", "level": "node", "edge_inputs": "auto"})"), spec::EdgeInputs::kAuto);
}

// Their weights have as many columns as their graph's degrees asked for.
TEST(JobJsonTest, ASpecOfBeforeDegreesHadTheSameColumnsOnEveryGraphHasItsOwn) {
  const auto own = [](const char* model) {
    const auto spec = SpecOf(std::string(R"({"dataset": "a", "model": )") + model + "}");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->train.model.own_degree_columns;
  };
  EXPECT_TRUE(own(R"({"architecture": "gcn", "level": "node", "node_inputs": "degree"})"));
  EXPECT_FALSE(own(R"({"architecture": "gcn", "level": "node", "node_inputs": "constant"})"));
  EXPECT_FALSE(own(R"({"architecture": "gin", "level": "graph", "node_inputs": "degree"})"));
  spec::JobSpec made;
  made.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  made.train.dataset = DatasetId("a");
  made.train.model.node_inputs = spec::NodeInputs::kDegree;
  const auto back = SpecOf(ToJson(SpecColumn{.spec = made, .dataset_uid = {}}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_FALSE(back->train.model.own_degree_columns) << "a job of this version";
}

TEST(JobJsonTest, WhatIsSampledAheadOfNothingIsTheDefault) {
  const auto look_ahead = [](const char* nodes) {
    const auto spec = SpecOf(std::string(R"({"dataset": "a", "nodes": )") + nodes + "}");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->train.nodes.look_ahead;
  };
  EXPECT_EQ(look_ahead(R"({"look_ahead": 8})"), spec::NodeTrainingOptions().look_ahead) << "as older servers wrote it";
  EXPECT_EQ(look_ahead(R"({"look_ahead": 8, "fan_outs": [5]})"), 8);
}

TEST(JobJsonTest, ASpecOfBeforeGraphCachesReadsAsTheDefaults) {
  const auto back = SpecOf(
      R"({"dataset": "zinc", "model": {"hidden_channels": 8}, "optimizer": {"algorithm": "adamw"}, "epochs": 3})");
  ASSERT_TRUE(back.ok()) << back.status();
  spec::JobSpec want;
  want.train.dataset = DatasetId("zinc");
  want.train.model.hidden_channels = 8;
  want.train.optimizer.algorithm = spec::OptimizerAlgorithm::kAdamW;
  want.train.epochs = 3;
  EXPECT_EQ(*back, want);
}

TEST(JobJsonTest, ProgressRoundTrips) {
  train::Progress progress;
  progress.epoch = 2;
  progress.step_in_epoch = 3;
  progress.steps_per_epoch = 313;
  progress.step = 316;
  progress.loss = 0.3;
  progress.graphs_per_second = 21'234.5;
  progress.eta = absl::Seconds(12) + absl::Nanoseconds(345);
  progress.graphs = 10'000;
  progress.nodes = 230'900;
  progress.edges = 496'500;
  progress.padding_nodes = 1;
  progress.padding_edges = 2;
  progress.phase_seconds = {0.1, 0.2, 0.3, 0.4};
  progress.checkpoint_step = 313;
  progress.look_ahead = {4, 2, 1'000'000, 3, {5, 6, 7, 8, 9, 10}};
  progress.look_ahead->rows =
      data::RowReading{.reader = {.kind = "pread", .depth = 4}, .counters = {.hits = 7, .rows = 9}};
  progress.look_ahead->cut_batches = 12;
  ProgressColumn column{progress, {4, 301, 300}, {"disk full", 2, absl::FromUnixMillis(1234)}};
  const auto back = ProgressFromJson(ToJson(column));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->progress.eta, progress.eta);
  EXPECT_EQ(back->progress.phase_seconds.optimizer, 0.4);
  ASSERT_TRUE(back->progress.look_ahead.has_value());
  EXPECT_EQ(back->progress.look_ahead->stalls, 3);
  EXPECT_EQ(back->progress.look_ahead->pages.major_faults, 10);
  EXPECT_EQ(back->progress.look_ahead->cut_batches, 12);
  ASSERT_TRUE(back->progress.look_ahead->rows.has_value());
  EXPECT_EQ(back->progress.look_ahead->rows->reader.kind, "pread");
  EXPECT_EQ(back->progress.look_ahead->rows->counters.hits, 7);
  EXPECT_EQ(back->progress.look_ahead->rows->counters.rows, 9u);
  EXPECT_EQ(back->deaths, column.deaths);
  EXPECT_EQ(back->trouble, column.trouble);
  EXPECT_EQ(ToJson(*back), ToJson(column));
  column.progress.eta = absl::InfiniteDuration();
  EXPECT_EQ(ProgressFromJson(ToJson(column))->progress.eta, absl::InfiniteDuration());
}

TEST(JobJsonTest, ResultRoundTrips) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const train::RunResult result{5, 0.1, 0.2, 0.3, 0.4, 0.5, 60.5, 1.25, 123'456, {0.1, kNan}, {0.2, -3}, {0.4, 5}};
  const auto back = ResultFromJson(ToJson(result));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(result));
  EXPECT_EQ(back->num_parameters, 123'456);
  EXPECT_EQ(back->final_test_metric, 0.4);
  EXPECT_TRUE(std::isnan(back->best_valid_metrics.at(1)));
  EXPECT_EQ(back->final_test_metrics.at(1), 5);
  // Rows of before several metrics.
  const auto before = ResultFromJson(R"({"best_test_metric":0.5})");
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_TRUE(before->best_test_metrics.empty());
  EXPECT_TRUE(EpochFromJson(R"({"epoch":3,"valid_metric":0.5})")->valid_metrics.empty());
}

TEST(JobJsonTest, OlderAndNewerVersionsAreRead) {
  const auto older = SpecOf(R"({"dataset":"zinc"})");
  ASSERT_TRUE(older.ok()) << older.status();
  spec::JobSpec defaults;
  defaults.train.dataset = DatasetId("zinc");
  EXPECT_EQ(*older, defaults);
  for (const auto& [name, architecture] :
       {std::pair{"sage", spec::Architecture::kSage}, {"gcn", spec::Architecture::kGcn}}) {
    const auto of_nodes = SpecOf(absl::StrCat(R"({"dataset":"cora","model":{"architecture":")", name, R"("}})"));
    ASSERT_TRUE(of_nodes.ok()) << of_nodes.status();
    EXPECT_EQ(of_nodes->train.model.level, spec::ModelLevel::kNode) << "models had one level each";
    EXPECT_EQ(of_nodes->train.model.norm, spec::Norm::kNone);
  }
  const auto before_deaths_were_counted = ProgressFromJson(R"({"checkpoint_step":7})");
  ASSERT_TRUE(before_deaths_were_counted.ok()) << before_deaths_were_counted.status();
  EXPECT_EQ(before_deaths_were_counted->progress.checkpoint_step, 7);
  EXPECT_EQ(before_deaths_were_counted->deaths, Deaths{});
  EXPECT_EQ(before_deaths_were_counted->trouble, Trouble{});
  EXPECT_EQ(ProgressFromJson(R"({"crashes":{"count":2,"checkpoint_step":7}})")->deaths, (Deaths{2, -1, 7}))
      << "before their steps were known";
  EXPECT_FALSE(before_deaths_were_counted->progress.look_ahead.has_value());
  const auto newer = SpecOf(R"({"dataset":"zinc","graph_cache":{"policy":"freeze"},"model":{"of_the_future":4}})");
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_EQ(*newer, defaults);
}

TEST(JobJsonTest, WhatDoesNotAddUpIsDataLoss) {
  const struct {
    const char* why;
    const char* text;
    const char* named;
  } kCases[] = {
      {"cut off", R"({"dataset":"zi)", "job spec"},
      {"not an object", "[]", "job spec"},
      {"an unknown name", R"({"loss":"l7"})", "l7"},
      {"text where a number belongs", R"({"epochs":"many"})", "job spec"},
      {"a word that is no number", R"({"optimizer":{"learning_rate":"fast"}})", "fast"},
      {"a number where an object belongs", R"({"model":3})", "job spec"},
      {"a number where a list belongs", R"({"class_weights":1})", "class_weights"},
      {"text in a list of numbers", R"({"nodes":{"fan_outs":["ten"]}})", "job spec"},
  };
  for (const auto& c : kCases) {
    const auto spec = SpecOf(c.text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kDataLoss) << c.why;
    EXPECT_THAT(std::string(spec.status().message()), testing::HasSubstr(c.named)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::jobs
