#include "telemetry/graph_cache_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <limits>
#include <string>

#include "absl/synchronization/mutex.h"
#include "telemetry/metrics.h"

namespace permafrost::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

prometheus::Family<Gauge>& GaugeFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

// References into the registry, which owns every metric. Any thread may update a metric that no lock below guards.
struct GraphCacheMetrics::Families {
  struct ByMode {
    MaybeGauge entries, entry_bytes, capacity, cut_executables;
    std::vector<Counter*> counters;                            // indexed by their rows
    std::vector<Counter*> captures_by_cause, misses_by_cause;  // indexed by the cause's name
  };

  Families(prometheus::Registry& registry, const std::vector<CounterRow>& counters,
           const std::vector<std::string_view>& mode_names, const std::vector<std::string_view>& cause_names)
      : shared_bytes(registry, "permafrost_graph_cache_shared_bytes",
                     "Bytes that all executables of the running job share. Absent while none runs."),
        bytes(registry, "permafrost_graph_cache_bytes",
              "Bytes of the running job's executables, shared ones included. Absent while none runs."),
        frozen(registry, "permafrost_graph_cache_frozen",
               "Whether the running job's graph cache is frozen. Absent while none runs."),
        frozen_timestamp(registry, "permafrost_graph_cache_frozen_timestamp_seconds",
                         "Unix time at which the running job's graph cache froze last. Absent before that."),
        storage_bytes(
            GaugeFamily(registry, "permafrost_torch_storage_bytes", "Bytes of tensor storage that torch holds.")
                .Add({})),
        storage_peak(GaugeFamily(registry, "permafrost_torch_storage_peak_bytes",
                                 "Most bytes of tensor storage at once since the newest job began or went on.")
                         .Add({})),
        storage_allocations(CounterFamily(registry, "permafrost_torch_storage_allocations_total",
                                          "Allocations of tensor storage by torch.")
                                .Add({})) {
    auto& entries = GaugeFamily(registry, "permafrost_graph_cache_entries",
                                "Executables that the running job's graph cache holds. Absent while none runs.");
    auto& entry_bytes = GaugeFamily(registry, "permafrost_graph_cache_entry_bytes",
                                    "Bytes that those executables keep for themselves. Absent while none runs.");
    auto& capacity = GaugeFamily(registry, "permafrost_graph_cache_capacity_entries",
                                 "Executables that the policy may keep, +Inf without bound. Absent while none "
                                 "runs.");
    auto& cut = GaugeFamily(registry, "permafrost_graph_cache_cut_executables",
                            "Planned executables that max_executables left no room for. Absent while none runs.");
    auto& captures_by_cause = CounterFamily(registry, "permafrost_graph_cache_captures_by_cause_total",
                                            "Executables made, by why they had to be.");
    auto& misses_by_cause = CounterFamily(registry, "permafrost_graph_cache_misses_by_cause_total",
                                          "Steps that no executable made before them could run, by why.");
    for (const std::string_view name : mode_names) {
      const prometheus::Labels mode{{"mode", std::string(name)}};
      modes.push_back({MaybeGauge(entries, mode),
                       MaybeGauge(entry_bytes, mode),
                       MaybeGauge(capacity, mode),
                       MaybeGauge(cut, mode),
                       {},
                       {},
                       {}});
      for (const CounterRow& row : counters) {
        prometheus::Labels labels = mode;
        if (!row.label.empty()) labels.emplace(row.label, row.value);
        auto& family = CounterFamily(registry, std::string(row.name), std::string(row.help));
        modes.back().counters.push_back(&family.Add(labels));
      }
      for (const std::string_view cause : cause_names) {
        const prometheus::Labels labels{{"mode", std::string(name)}, {"cause", std::string(cause)}};
        modes.back().captures_by_cause.push_back(&captures_by_cause.Add(labels));
        modes.back().misses_by_cause.push_back(&misses_by_cause.Add(labels));
      }
    }
  }

  std::vector<ByMode> modes;
  // Guards all MaybeGauges, also those in `modes`.
  absl::Mutex maybe_mu;
  MaybeGauge shared_bytes, bytes, frozen, frozen_timestamp;
  Gauge& storage_bytes;
  Gauge& storage_peak;
  Counter& storage_allocations;
  absl::Mutex raise_mu;  // held from reading a counter until it is raised
};

GraphCacheMetrics::GraphCacheMetrics(prometheus::Registry& registry, const std::vector<CounterRow>& counters,
                                     const std::vector<std::string_view>& mode_names,
                                     const std::vector<std::string_view>& cause_names)
    : families_(std::make_unique<Families>(registry, counters, mode_names, cause_names)) {}

GraphCacheMetrics::~GraphCacheMetrics() = default;

void GraphCacheMetrics::Add(size_t mode, const GraphCacheCounts& increments) {
  Families::ByMode& m = families_->modes.at(mode);
  for (size_t i = 0; i < m.counters.size(); ++i) m.counters[i]->Increment(increments.counters.at(i));
  // Zeros are skipped to save time, since this runs at each step and few steps have a capture or a miss.
  const auto add_any = [](const std::vector<Counter*>& counters, const CountsByCause& counts) {
    for (size_t i = 0; i < counters.size(); ++i)
      if (counts.at(i) > 0) counters[i]->Increment(static_cast<double>(counts.at(i)));
  };
  add_any(m.captures_by_cause, increments.captures_by_cause);
  add_any(m.misses_by_cause, increments.misses_by_cause);
}

void GraphCacheMetrics::SetRunning(const std::optional<GraphCacheState>& state) {
  const absl::MutexLock lock(&families_->maybe_mu);
  std::optional<double> none;
  if (!state) {
    for (Families::ByMode& mode : families_->modes) {
      for (MaybeGauge* gauge : {&mode.entries, &mode.entry_bytes, &mode.capacity, &mode.cut_executables}) {
        gauge->Set(none);
      }
    }
    for (MaybeGauge* gauge :
         {&families_->shared_bytes, &families_->bytes, &families_->frozen, &families_->frozen_timestamp}) {
      gauge->Set(none);
    }
    return;
  }
  int64_t total = state->shared_bytes;
  for (size_t i = 0; i < families_->modes.size(); ++i) {
    const GraphCacheUse use = i < state->modes.size() ? state->modes[i] : GraphCacheUse();
    Families::ByMode& m = families_->modes[i];
    m.entries.Set(static_cast<double>(use.entries));
    m.entry_bytes.Set(static_cast<double>(use.entry_bytes));
    m.capacity.Set(use.capacity < 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(use.capacity));
    m.cut_executables.Set(static_cast<double>(use.cut_executables));
    total += use.entry_bytes;
  }
  families_->shared_bytes.Set(static_cast<double>(state->shared_bytes));
  families_->bytes.Set(static_cast<double>(total));
  families_->frozen.Set(state->frozen ? 1 : 0);
  const bool ever = state->freeze_time != absl::InfinitePast();
  families_->frozen_timestamp.Set(ever ? std::optional(absl::ToDoubleSeconds(state->freeze_time - absl::UnixEpoch()))
                                       : none);
}

void GraphCacheMetrics::SetTorchStorage(int64_t bytes, int64_t peak_bytes, int64_t allocations_total) {
  families_->storage_bytes.Set(static_cast<double>(bytes));
  families_->storage_peak.Set(static_cast<double>(peak_bytes));
  absl::MutexLock lock(&families_->raise_mu);
  Counter& allocations = families_->storage_allocations;
  // Two concurrent scrapes may pass their totals in the wrong order. The counter must not fall, so the lower total is
  // ignored.
  const double missing = static_cast<double>(allocations_total) - allocations.Value();
  if (missing > 0) allocations.Increment(missing);
}

}  // namespace permafrost::telemetry
