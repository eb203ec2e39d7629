#include "telemetry/graph_cache_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <limits>
#include <string>

#include "absl/synchronization/mutex.h"
#include "telemetry/maybe_gauge.h"

namespace permafrost::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

prometheus::Family<Counter>& CounterFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<Gauge>& GaugeFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

// References into the registry, which owns every metric; all of them are safe to update anywhere.
struct GraphCacheMetrics::Families {
  struct ByMode {
    MaybeGauge entries, entry_bytes, capacity, cut_executables;
    Counter &hits, &padded_hits, &misses, &captures, &rejected_inserts, &graph_breaks, &eager_steps, &transient_steps,
        &oversize_steps, &capture_seconds;
    Counter &nodes, &edges, &padding_nodes, &padding_edges;
    Counter &audits_equal, &audits_different;
    std::vector<Counter*> captures_by_cause, misses_by_cause;  // by the index of the cause's name
  };

  Families(prometheus::Registry& registry, const std::vector<std::string_view>& mode_names,
           const std::vector<std::string_view>& cause_names)
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
    auto& hits = CounterFamily(registry, "permafrost_graph_cache_hits_total", "Steps replayed at their own shape.");
    auto& padded_hits =
        CounterFamily(registry, "permafrost_graph_cache_padded_hits_total", "Steps replayed in a larger shape.");
    auto& misses = CounterFamily(registry, "permafrost_graph_cache_misses_total",
                                 "Steps that no executable made before them could run.");
    auto& captures = CounterFamily(registry, "permafrost_graph_cache_captures_total", "Executables made.");
    auto& rejected = CounterFamily(registry, "permafrost_graph_cache_rejected_inserts_total",
                                   "Steps whose shape would have been kept had the graph cache not been frozen.");
    auto& breaks = CounterFamily(registry, "permafrost_graph_cache_graph_breaks_total",
                                 "Captures that found the step not capturable, or not for every shape.");
    auto& eager = CounterFamily(registry, "permafrost_graph_cache_eager_steps_total", "Steps that ran uncaptured.");
    auto& transient = CounterFamily(registry, "permafrost_graph_cache_transient_steps_total",
                                    "Steps whose executable was dropped at their end.");
    auto& oversize = CounterFamily(registry, "permafrost_graph_cache_oversize_steps_total",
                                   "Of hits, steps of batches larger than what a dynamic executable has room for.");
    auto& seconds = CounterFamily(registry, "permafrost_graph_cache_capture_seconds_total", "Time spent on captures.");
    auto& rows =
        CounterFamily(registry, "permafrost_graph_cache_rows_total", "Rows of the batches of steps, padding apart.");
    auto& padding =
        CounterFamily(registry, "permafrost_graph_cache_padding_rows_total", "Rows that padding added to steps.");
    auto& audits = CounterFamily(registry, "permafrost_graph_cache_audits_total",
                                 "Replays that were run again eagerly from the same state, and compared bit for bit.");
    auto& captures_by_cause = CounterFamily(registry, "permafrost_graph_cache_captures_by_cause_total",
                                            "Executables made, by why they had to be.");
    auto& misses_by_cause = CounterFamily(registry, "permafrost_graph_cache_misses_by_cause_total",
                                          "Steps that no executable made before them could run, by why.");
    for (const std::string_view name : mode_names) {
      const prometheus::Labels mode{{"mode", std::string(name)}};
      const prometheus::Labels nodes{{"mode", std::string(name)}, {"kind", "nodes"}};
      const prometheus::Labels edges{{"mode", std::string(name)}, {"kind", "edges"}};
      modes.push_back({MaybeGauge(entries, mode),
                       MaybeGauge(entry_bytes, mode),
                       MaybeGauge(capacity, mode),
                       MaybeGauge(cut, mode),
                       hits.Add(mode),
                       padded_hits.Add(mode),
                       misses.Add(mode),
                       captures.Add(mode),
                       rejected.Add(mode),
                       breaks.Add(mode),
                       eager.Add(mode),
                       transient.Add(mode),
                       oversize.Add(mode),
                       seconds.Add(mode),
                       rows.Add(nodes),
                       rows.Add(edges),
                       padding.Add(nodes),
                       padding.Add(edges),
                       audits.Add({{"mode", std::string(name)}, {"result", "equal"}}),
                       audits.Add({{"mode", std::string(name)}, {"result", "different"}}),
                       {},
                       {}});
      for (const std::string_view cause : cause_names) {
        const prometheus::Labels labels{{"mode", std::string(name)}, {"cause", std::string(cause)}};
        modes.back().captures_by_cause.push_back(&captures_by_cause.Add(labels));
        modes.back().misses_by_cause.push_back(&misses_by_cause.Add(labels));
      }
    }
  }

  std::vector<ByMode> modes;
  // Guards the series that come and go, also those in `modes`.
  absl::Mutex maybe_mu;
  MaybeGauge shared_bytes, bytes, frozen, frozen_timestamp;
  Gauge& storage_bytes;
  Gauge& storage_peak;
  Counter& storage_allocations;
  absl::Mutex raise_mu;  // makes reading and raising a counter one step
};

GraphCacheMetrics::GraphCacheMetrics(prometheus::Registry& registry, const std::vector<std::string_view>& mode_names,
                                     const std::vector<std::string_view>& cause_names)
    : families_(std::make_unique<Families>(registry, mode_names, cause_names)) {}

GraphCacheMetrics::~GraphCacheMetrics() = default;

void GraphCacheMetrics::Add(size_t mode, const GraphCacheCounts& increments) {
  Families::ByMode& m = families_->modes.at(mode);
  const auto add = [](Counter& counter, int64_t increment) { counter.Increment(static_cast<double>(increment)); };
  add(m.hits, increments.hits);
  add(m.padded_hits, increments.padded_hits);
  add(m.misses, increments.misses);
  add(m.captures, increments.captures);
  add(m.rejected_inserts, increments.rejected_inserts);
  add(m.graph_breaks, increments.graph_breaks);
  add(m.eager_steps, increments.eager_steps);
  add(m.transient_steps, increments.transient_steps);
  add(m.oversize_steps, increments.oversize_steps);
  add(m.audits_equal, increments.audits_equal);
  add(m.audits_different, increments.audits_different);
  // Called at each step, of which hardly one has a cause.
  const auto add_any = [&](const std::vector<Counter*>& counters, const CountsByCause& counts) {
    for (size_t i = 0; i < counters.size(); ++i)
      if (counts.at(i) > 0) add(*counters[i], counts.at(i));
  };
  add_any(m.captures_by_cause, increments.captures_by_cause);
  add_any(m.misses_by_cause, increments.misses_by_cause);
  m.capture_seconds.Increment(increments.capture_seconds);
  add(m.nodes, increments.nodes);
  add(m.edges, increments.edges);
  add(m.padding_nodes, increments.padding_nodes);
  add(m.padding_edges, increments.padding_edges);
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
  // Two scrapes at once may come with their readings in the wrong order: a total never falls.
  const double missing = static_cast<double>(allocations_total) - allocations.Value();
  if (missing > 0) allocations.Increment(missing);
}

}  // namespace permafrost::telemetry
