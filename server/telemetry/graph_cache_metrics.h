// Metrics of graph caches and of the memory that torch holds. Labels are bounded. All series exist from the start,
// except those of the running job. Counters start at 0 with this process, so they exclude earlier runs of a resumed
// job.
// Threads: all methods are safe anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"

namespace prometheus {
class Registry;
}

namespace permafrost::telemetry {

// A counter of the graph cache, with one series per mode. If several rows have the same name, they differ in the
// value of one more label.
struct CounterRow {
  std::string_view name, help;
  std::string_view label, value;  // a label besides {mode}; empty: none
};

// Increments of counters, indexed by the counter's row. Every step passes one such list, so up to 24 entries are kept
// off the heap.
using CounterValues = absl::InlinedVector<double, 24>;
// Counts by cause, in the order of the constructor's `cause_names`.
using CountsByCause = std::array<int64_t, 16>;

// The counts are plain numbers, since telemetry may not include the graph cache's headers.
struct GraphCacheCounts {
  int64_t steps = 0;
  CounterValues counters;
  CountsByCause captures_by_cause{}, misses_by_cause{};
};
struct GraphCacheUse {
  int64_t entries = 0, entry_bytes = 0;
  int64_t capacity = 0;  // -1: unbounded
  int64_t cut_executables = 0;
};
struct GraphCacheState {
  std::vector<GraphCacheUse> modes;  // in the order of `mode_names`; modes beyond the end are 0
  int64_t shared_bytes = 0;
  bool frozen = false;
  absl::Time freeze_time = absl::InfinitePast();  // InfinitePast: never frozen
};

class GraphCacheMetrics {
 public:
  // `mode_names` and `cause_names` are the label values of {mode} and {cause}. Borrows the registry.
  GraphCacheMetrics(prometheus::Registry& registry, const std::vector<CounterRow>& counters,
                    const std::vector<std::string_view>& mode_names, const std::vector<std::string_view>& cause_names);
  ~GraphCacheMetrics();

  // Raises the counters of mode_names[mode], and permafrost_graph_cache_{captures,misses}_by_cause_total{mode,cause}.
  void Add(size_t mode, const GraphCacheCounts& increments);
  // Sets the series of the running job, which are listed below. nullopt means that no job runs, and these series are
  // then absent. permafrost_graph_cache_{entries,entry_bytes,capacity_entries,cut_executables}{mode}; an unbounded
  // capacity is +Inf.
  // permafrost_graph_cache_{shared_bytes,bytes,frozen,frozen_timestamp_seconds}; frozen_timestamp_seconds is absent
  // if the cache was never frozen.
  void SetRunning(const std::optional<GraphCacheState>& state);
  // Sets permafrost_torch_storage_{bytes,peak_bytes} and permafrost_torch_storage_allocations_total. Called before
  // each scrape.
  void SetTorchStorage(int64_t bytes, int64_t peak_bytes, int64_t allocations_total);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
