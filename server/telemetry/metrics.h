// Adds metrics to a registry by a line each: as a family, without labels, or there only while there is something to
// tell.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <optional>
#include <string>
#include <utility>

namespace permafrost::telemetry {

// The family of this name, which is made where there is none yet.
inline prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry, const std::string& name,
                                                              const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

// Metrics without labels, added to a registry, which owns them.
inline prometheus::Counter& OneCounter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

inline prometheus::Gauge& OneGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

// A gauge that is there only while there is something to tell: a zero would be taken for a measurement.
// Threads: one at a time.
class MaybeGauge {
 public:
  // Borrows the family.
  MaybeGauge(prometheus::Family<prometheus::Gauge>& family, prometheus::Labels labels)
      : family_(family), labels_(std::move(labels)) {}
  // The only series of a family of its own.
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
