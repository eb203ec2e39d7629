// Metrics of graph caches and of the memory that torch holds. Labels are bounded. All series exist from the start,
// except those of the running job. Counters belong to this process: they exclude what an earlier run of a resumed job
// did.
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

// A counter that each mode has. Counters of the same name differ in the value of one label.
struct CounterRow {
  std::string_view name, help;
  std::string_view label, value;  // besides {mode}; empty: none
};

// Increments, indexed by the counter's row. Each step brings such a list, and up to 24 entries need no heap.
using CounterValues = absl::InlinedVector<double, 24>;
// Counts, indexed by the cause's name.
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
  std::vector<GraphCacheUse> modes;  // indexed by the mode's name; missing modes hold nothing
  int64_t shared_bytes = 0;
  bool frozen = false;
  absl::Time freeze_time = absl::InfinitePast();  // InfinitePast: not frozen
};

class GraphCacheMetrics {
 public:
  // `mode_names` and `cause_names` are the label values of {mode} and {cause}. Borrows the registry.
  GraphCacheMetrics(prometheus::Registry& registry, const std::vector<CounterRow>& counters,
                    const std::vector<std::string_view>& mode_names, const std::vector<std::string_view>& cause_names);
  ~GraphCacheMetrics();

  // Raises the counters of a mode, given by the index of its name, and
  // permafrost_graph_cache_{captures,misses}_by_cause_total{mode,cause}.
  void Add(size_t mode, const GraphCacheCounts& increments);
  // Sets the series of the running job. nullopt means that no job runs; the series are then absent.
  // permafrost_graph_cache_{entries,entry_bytes,capacity_entries,cut_executables}{mode}; an unbounded capacity is
  // +Inf.
  // permafrost_graph_cache_{shared_bytes,bytes,frozen,frozen_timestamp_seconds}; the last is absent until the cache
  // is frozen.
  void SetRunning(const std::optional<GraphCacheState>& state);
  // Sets permafrost_torch_storage_{bytes,peak_bytes} and permafrost_torch_storage_allocations_total. Called before
  // each scrape.
  void SetTorchStorage(int64_t bytes, int64_t peak_bytes, int64_t allocations_total);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
