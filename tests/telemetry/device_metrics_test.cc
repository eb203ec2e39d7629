#include "telemetry/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "metric_values.h"

namespace permafrost::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DeviceMetrics, WhatTheDeviceDoesNotTellHasNoSeries) {
  prometheus::Registry registry;
  DeviceMetrics metrics(registry);
  EXPECT_THAT(MetricsText(registry), Not(HasSubstr("permafrost_device_memory_bytes{")));
  EXPECT_THAT(MetricsText(registry), Not(HasSubstr("permafrost_device_graph_entries ")));
  metrics.Set(DeviceState());
  EXPECT_THAT(MetricsText(registry), Not(HasSubstr("permafrost_device_empty_cache_total{"))) << "of a CPU";

  DeviceState state;
  state.memory = {.allocated = 5, .reserved = 7, .driver = 11, .recommended_max = 13, .resident = 17};
  state.graph_entries = 0;
  state.utilization = 0.25;
  state.empty_caches = {{"never", 3}, {"job", 0}, {"made-up", 9}};
  metrics.Set(state);
  const auto memory = [&](const char* kind) {
    return MetricValue(registry, "permafrost_device_memory_bytes", {{"kind", kind}});
  };
  EXPECT_EQ(memory("allocated"), 5);
  EXPECT_EQ(memory("reserved"), 7);
  EXPECT_EQ(memory("driver"), 11);
  EXPECT_EQ(memory("recommended_max"), 13);
  EXPECT_EQ(memory("resident"), 17);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_graph_entries"), 0) << "none is not unknown";
  EXPECT_EQ(MetricValue(registry, "permafrost_device_utilization_ratio"), 0.25);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_empty_cache_total", {{"reason", "never"}}), 3);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_empty_cache_total", {{"reason", "job"}}), 0) << "it has caches";
  EXPECT_THAT(MetricsText(registry), Not(HasSubstr("made-up")));

  // The values become unavailable again.
  state.graph_entries = state.memory.driver = std::nullopt;
  state.empty_caches["never"] = 2;
  metrics.Set(state);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_graph_entries"), std::nullopt);
  EXPECT_EQ(memory("driver"), std::nullopt);
  EXPECT_EQ(memory("allocated"), 5);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_empty_cache_total", {{"reason", "never"}}), 3) << "a total";
}

}  // namespace
}  // namespace permafrost::telemetry
