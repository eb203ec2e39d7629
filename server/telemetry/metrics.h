// Functions that add a metric to a registry in one line: a family, a metric without labels, or a gauge that exists
// only while it has a value.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <optional>
#include <string>
#include <utility>

namespace permafrost::telemetry {

// Returns the family of this name, and makes it if there is none yet.
inline prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry, const std::string& name,
                                                              const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

// Adds a metric without labels to a registry, which owns it.
inline prometheus::Counter& OneCounter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

inline prometheus::Gauge& OneGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

// A gauge that exists only while it has a value, since a 0 in its place would look like a measurement.
// Threads: one at a time.
class MaybeGauge {
 public:
  // Borrows the family.
  MaybeGauge(prometheus::Family<prometheus::Gauge>& family, prometheus::Labels labels)
      : family_(family), labels_(std::move(labels)) {}
  // Makes a new family, in which this gauge is the only series.
  MaybeGauge(prometheus::Registry& registry, const char* name, const char* help)
      : MaybeGauge(prometheus::BuildGauge().Name(name).Help(help).Register(registry), {}) {}

  void Set(std::optional<double> value) {
    if (!value) {
      if (gauge_ != nullptr) family_.Remove(gauge_);
      gauge_ = nullptr;
      return;
    }
    if (gauge_ == nullptr) gauge_ = &family_.Add(labels_);
    gauge_->Set(*value);
  }

 private:
  prometheus::Family<prometheus::Gauge>& family_;
  const prometheus::Labels labels_;
  prometheus::Gauge* gauge_ = nullptr;
};

}  // namespace permafrost::telemetry
