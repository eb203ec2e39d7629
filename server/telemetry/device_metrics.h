// Metrics of the device. A value that the device does not tell has no series: an absent one is not 0.
// Threads: all methods are safe anywhere.
#pragma once

#include <memory>

#include "base/device_state.h"

namespace prometheus {
class Registry;
}

namespace permafrost::telemetry {

class DeviceMetrics {
 public:
  // permafrost_device_memory_bytes{kind}; kind is allocated, reserved, driver, recommended_max or resident
  // permafrost_device_graph_entries, permafrost_device_utilization_ratio
  // permafrost_device_empty_cache_total{reason}, of the reasons (kEmptyReasonNames) that the state tells. Borrows the
  // registry.
  explicit DeviceMetrics(prometheus::Registry& registry);
  ~DeviceMetrics();

  void Set(const DeviceState& state);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
