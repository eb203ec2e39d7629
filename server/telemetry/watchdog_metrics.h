// Metrics of whether the device thread gets on.
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>

#include "absl/time/time.h"

namespace prometheus {
class Registry;
}

namespace permafrost::telemetry {

class WatchdogMetrics {
 public:
  // Borrows the registry.
  explicit WatchdogMetrics(prometheus::Registry& registry);
  ~WatchdogMetrics();

  // permafrost_device_thread_stalled, 0 or 1; permafrost_device_thread_seconds_since_progress, absent while the thread
  // is idle (nullopt).
  void Set(bool stalled, std::optional<absl::Duration> since_progress);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
