// Reads single samples of a registry, as a scraper does.
#pragma once

#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <optional>
#include <string>

namespace permafrost {

using MetricLabels = std::map<std::string, std::string>;

// Returns the sample's value, which is the count for a histogram. Null if there is no such series.
inline std::optional<double> MetricValue(const prometheus::Registry& registry, const std::string& name,
                                         const MetricLabels& labels = {}) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      MetricLabels found;
      for (const auto& label : metric.label) found[label.name] = label.value;
      if (found != labels) continue;
      if (family.type == prometheus::MetricType::Counter) return metric.counter.value;
      if (family.type == prometheus::MetricType::Gauge) return metric.gauge.value;
      return static_cast<double>(metric.histogram.sample_count);
    }
  }
  return std::nullopt;
}

inline std::string MetricsText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace permafrost
