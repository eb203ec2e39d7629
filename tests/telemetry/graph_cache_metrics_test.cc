#include "telemetry/graph_cache_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <limits>

#include "metric_values.h"

namespace permafrost::telemetry {
namespace {

constexpr size_t kTrain = 0, kEval = 1;

class GraphCacheMetricsTest : public testing::Test {
 protected:
  double Value(const std::string& name, const MetricLabels& labels = {}) const {
    const auto value = MetricValue(registry_, "permafrost_" + name, labels);
    EXPECT_TRUE(value) << name;
    return value.value_or(-1);
  }
  double OfMode(const std::string& name, const char* mode) const {
    return Value("graph_cache_" + name, {{"mode", mode}});
  }

  prometheus::Registry registry_;
  GraphCacheMetrics metrics_{registry_,
                             {{"permafrost_graph_cache_hits_total", "Hits.", "", ""},
                              {"permafrost_graph_cache_rows_total", "Rows.", "kind", "nodes"},
                              {"permafrost_graph_cache_rows_total", "Rows.", "kind", "edges"}},
                             {"train", "eval"},
                             {"new-nodes", "resume"}};
};

TEST_F(GraphCacheMetricsTest, EverySeriesButThoseOfTheRunningJobExistsFromTheStart) {
  for (const char* mode : {"train", "eval"}) {
    EXPECT_EQ(OfMode("hits_total", mode), 0);
    for (const char* cause : {"new-nodes", "resume"}) {
      EXPECT_EQ(Value("graph_cache_captures_by_cause_total", {{"mode", mode}, {"cause", cause}}), 0);
      EXPECT_EQ(Value("graph_cache_misses_by_cause_total", {{"mode", mode}, {"cause", cause}}), 0);
    }
    for (const char* kind : {"nodes", "edges"}) {
      EXPECT_EQ(Value("graph_cache_rows_total", {{"mode", mode}, {"kind", kind}}), 0);
    }
  }
  for (const char* name : {"torch_storage_bytes", "torch_storage_peak_bytes", "torch_storage_allocations_total"}) {
    EXPECT_EQ(Value(name), 0) << name;
  }
}

TEST_F(GraphCacheMetricsTest, CountsAddUpByMode) {
  const GraphCacheCounts counts{.counters = {1, 9, 0.5}, .captures_by_cause = {0, 15}, .misses_by_cause = {16, 0}};
  metrics_.Add(kTrain, counts);
  metrics_.Add(kTrain, counts);
  metrics_.Add(kEval, {.counters = {100, 0, 0}});
  EXPECT_EQ(OfMode("hits_total", "train"), 2);
  EXPECT_EQ(OfMode("hits_total", "eval"), 100);
  EXPECT_EQ(Value("graph_cache_captures_by_cause_total", {{"mode", "train"}, {"cause", "resume"}}), 30);
  EXPECT_EQ(Value("graph_cache_captures_by_cause_total", {{"mode", "train"}, {"cause", "new-nodes"}}), 0);
  EXPECT_EQ(Value("graph_cache_misses_by_cause_total", {{"mode", "train"}, {"cause", "new-nodes"}}), 32);
  EXPECT_EQ(Value("graph_cache_misses_by_cause_total", {{"mode", "eval"}, {"cause", "new-nodes"}}), 0);
  EXPECT_EQ(Value("graph_cache_rows_total", {{"mode", "train"}, {"kind", "nodes"}}), 18);
  EXPECT_EQ(Value("graph_cache_rows_total", {{"mode", "train"}, {"kind", "edges"}}), 1);
  EXPECT_EQ(Value("graph_cache_rows_total", {{"mode", "eval"}, {"kind", "nodes"}}), 0);
}

TEST_F(GraphCacheMetricsTest, GaugesAreOfTheRunningJob) {
  metrics_.SetRunning(
      GraphCacheState{.modes = {{.entries = 98, .entry_bytes = 1000, .capacity = -1},
                                {.entries = 12, .entry_bytes = 200, .capacity = 32, .cut_executables = 7}},
                      .shared_bytes = 5000,
                      .frozen = true,
                      .freeze_time = absl::FromUnixMillis(1'700'000'000'500)});
  EXPECT_EQ(OfMode("entries", "train"), 98);
  EXPECT_EQ(OfMode("entries", "eval"), 12);
  EXPECT_EQ(OfMode("entry_bytes", "train"), 1000);
  EXPECT_EQ(OfMode("capacity_entries", "train"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(OfMode("capacity_entries", "eval"), 32);
  EXPECT_EQ(OfMode("cut_executables", "train"), 0);
  EXPECT_EQ(OfMode("cut_executables", "eval"), 7);
  EXPECT_THAT(MetricsText(registry_),
              testing::HasSubstr("permafrost_graph_cache_capacity_entries{mode=\"train\"} +Inf"));
  EXPECT_EQ(Value("graph_cache_shared_bytes"), 5000);
  EXPECT_EQ(Value("graph_cache_bytes"), 6200);
  EXPECT_EQ(Value("graph_cache_frozen"), 1);
  EXPECT_EQ(Value("graph_cache_frozen_timestamp_seconds"), 1'700'000'000.5);

  metrics_.SetRunning(GraphCacheState{.modes = {}});
  EXPECT_EQ(OfMode("entries", "train"), 0) << "it holds none yet";
  EXPECT_EQ(Value("graph_cache_frozen"), 0);
  EXPECT_THAT(MetricsText(registry_), testing::Not(testing::HasSubstr("frozen_timestamp_seconds ")));

  metrics_.SetRunning(std::nullopt);
  const std::string idle = MetricsText(registry_);
  for (const char* gauge : {"entries{", "entry_bytes{", "capacity_entries{", "shared_bytes ", "bytes ", "frozen "}) {
    EXPECT_THAT(idle, testing::Not(testing::HasSubstr(std::string("permafrost_graph_cache_") + gauge)));
  }
}

TEST_F(GraphCacheMetricsTest, StorageBytesRiseAndFallAllocationsOnlyRise) {
  metrics_.SetTorchStorage(100, 100, 10);
  metrics_.SetTorchStorage(50, 120, 12);
  EXPECT_EQ(Value("torch_storage_bytes"), 50);
  EXPECT_EQ(Value("torch_storage_peak_bytes"), 120);
  EXPECT_EQ(Value("torch_storage_allocations_total"), 12);
  metrics_.SetTorchStorage(60, 120, 11);
  EXPECT_EQ(Value("torch_storage_allocations_total"), 12);
}

}  // namespace
}  // namespace permafrost::telemetry
