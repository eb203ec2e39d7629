#include "jobs/job_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "spec/job_spec.h"

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

// Sets the fields of options to other values than their defaults, one field at a time.
class Changes {
 public:
  explicit Changes(std::function<void(const std::string& name)> check) : check_(std::move(check)) {}

  template <spec::HasFields T>
  void Visit(T& options) {
    VisitFields(spec::Options<T>(), [&](const spec::Field& field, auto member, const auto&... names) {
      Row(field.name, options.*member, names...);
    });
  }

 private:
  template <class M, class... Names>
  void Row(const char* name, M& option, const Names&... names) {
    if constexpr (spec::HasFields<M>) {
      Visit(option);
    } else {
      const M before = option;
      Change(option, names...);
      check_(name);
      option = before;
    }
  }

  static void Change(bool& option) { option = !option; }
  static void Change(uint64_t& option) { option = std::numeric_limits<uint64_t>::max(); }
  template <std::integral M>
  static void Change(M& option) {
    option += 7;
  }
  static void Change(double& option) { option += 0.1; }
  static void Change(std::string& option) { option = "/data/w.safetensors"; }
  static void Change(std::optional<int64_t>& option) { option = -1; }
  static void Change(std::vector<int64_t>& option) { option = {15, -1}; }
  static void Change(std::vector<double>& option) { option = {1.0 / 3}; }
  static void Change(std::vector<std::string>& option) { option = {"convs.0", "head"}; }
  template <class Tag>
  static void Change(Id<Tag>& option) {
    option = Id<Tag>("other");
  }
  static void Change(absl::Duration& option) { option = absl::Milliseconds(90'061'001); }
  static void Change(absl::Time& option) { option = absl::FromUnixMicros(1'790'000'000'000'001); }
  template <class E, std::size_t N>
  static void Change(E& option, const EnumNames<E, N>& names) {
    option = names.rows.back().first == option ? names.rows.front().first : names.rows.back().first;
  }
  template <class E, std::size_t N>
  static void Change(std::vector<E>& option, const EnumNames<E, N>& names) {
    option = {names.rows.back().first, names.rows.front().first};
  }

  const std::function<void(const std::string& name)> check_;
};

TEST(JobJsonTest, EveryFieldOfASpecRoundTrips) {
  for (const auto& [level, level_name] : spec::kModelLevelNames.rows) {
    spec::JobSpec spec;
    spec.train = spec::DefaultOptions(level);
    // Makes the job sample. Otherwise it would have the default look_ahead, whatever its row says.
    spec.train.nodes.fan_outs = {5};
    const spec::JobSpec before = spec;
    int fields = 0;
    Changes([&](const std::string& name) {
      ++fields;
      EXPECT_NE(spec, before) << name;
      const auto back = SpecOf(ToJson(SpecColumn{.spec = spec, .dataset_uid = {}}));
      ASSERT_TRUE(back.ok()) << name << ": " << back.status();
      EXPECT_EQ(*back, spec) << name;
    }).Visit(spec);
    EXPECT_GT(fields, 80);
  }
}

// Jobs of that time have weights of models that read no edge features, even if the graph has some.
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

// Weights of that time have as many columns as the degrees of their own graph required.
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
  // The row of a version with a single metric.
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
