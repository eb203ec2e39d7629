#include "telemetry/watchdog_metrics.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "telemetry/single_metric.h"

namespace permafrost::telemetry {

struct WatchdogMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : stalled(OneGauge(registry, "permafrost_device_thread_stalled",
                         "1 while the device thread has made no progress for longer than --watchdog, else 0.")),
        since_progress(prometheus::BuildGauge()
                           .Name("permafrost_device_thread_seconds_since_progress")
                           .Help("Time since the device thread last got on with a job; absent while it is idle.")
                           .Register(registry)) {}

  prometheus::Gauge& stalled;
  prometheus::Family<prometheus::Gauge>& since_progress;
  prometheus::Gauge* seconds = nullptr;  // the family's one series; null: absent
};

WatchdogMetrics::WatchdogMetrics(prometheus::Registry& registry) : families_(std::make_unique<Families>(registry)) {}

WatchdogMetrics::~WatchdogMetrics() = default;

void WatchdogMetrics::Set(bool stalled, std::optional<absl::Duration> since_progress) {
  families_->stalled.Set(stalled ? 1 : 0);
  prometheus::Gauge*& seconds = families_->seconds;
  if (!since_progress) {
    if (seconds != nullptr) families_->since_progress.Remove(seconds);
    seconds = nullptr;
    return;
  }
  if (seconds == nullptr) seconds = &families_->since_progress.Add({});
  seconds->Set(absl::ToDoubleSeconds(*since_progress));
}

}  // namespace permafrost::telemetry
