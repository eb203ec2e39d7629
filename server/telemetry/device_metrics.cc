#include "telemetry/device_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "telemetry/maybe_gauge.h"

namespace permafrost::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

prometheus::Family<Gauge>& MemoryFamily(prometheus::Registry& registry) {
  return prometheus::BuildGauge()
      .Name("permafrost_device_memory_bytes")
      .Help(
          "Memory of the device by kind: of live tensors, held by the allocator, held by the driver for this process, "
          "the most that the device recommends, and this process on the host. Kinds it does not tell are absent.")
      .Register(registry);
}

}  // namespace

struct DeviceMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : graphs(prometheus::BuildGauge()
                   .Name("permafrost_device_graph_entries")
                   .Help("Graphs that the device itself keeps compiled, one a shape. Absent where it is not known.")
                   .Register(registry),
               {}),
        utilization(prometheus::BuildGauge()
                        .Name("permafrost_device_utilization_ratio")
                        .Help("How busy the device is, 0 to 1. Absent where the device does not tell.")
                        .Register(registry),
                    {}),
        emptied(prometheus::BuildCounter()
                    .Name("permafrost_device_empty_cache_total")
                    .Help("How often the device's own caches, of memory and of compiled graphs, were emptied. Absent "
                          "where it has none.")
                    .Register(registry)) {
    auto& memory = MemoryFamily(registry);
    for (const char* kind : {"allocated", "reserved", "driver", "recommended_max", "resident"}) {
      memory_by_kind.emplace(kind, MaybeGauge(memory, {{"kind", kind}}));
    }
  }

  absl::Mutex mu;
  MaybeGauge graphs ABSL_GUARDED_BY(mu), utilization ABSL_GUARDED_BY(mu);
  std::map<std::string, MaybeGauge> memory_by_kind ABSL_GUARDED_BY(mu);
  prometheus::Family<Counter>& emptied;
};

DeviceMetrics::DeviceMetrics(prometheus::Registry& registry) : families_(std::make_unique<Families>(registry)) {}

DeviceMetrics::~DeviceMetrics() = default;

void DeviceMetrics::Set(const DeviceState& state) {
  const absl::MutexLock lock(&families_->mu);
  const DeviceMemory& memory = state.memory;
  const std::pair<const char*, std::optional<int64_t>> kinds[] = {{"allocated", memory.allocated},
                                                                  {"reserved", memory.reserved},
                                                                  {"driver", memory.driver},
                                                                  {"recommended_max", memory.recommended_max},
                                                                  {"resident", memory.resident}};
  for (const auto& [kind, bytes] : kinds) families_->memory_by_kind.at(kind).Set(bytes);
  families_->graphs.Set(state.graph_entries);
  families_->utilization.Set(state.utilization);
  for (const auto& [reason, count] : state.empty_caches) {
    if (!kEmptyReasonNames.Parse(reason)) continue;
    Counter& total = families_->emptied.Add({{"reason", reason}});
    // Never back: a total that shrank is not a total.
    if (const double more = static_cast<double>(count) - total.Value(); more > 0) total.Increment(more);
  }
}

}  // namespace permafrost::telemetry
