// Metrics of graph caches and of the memory that torch holds. Every series exists from the start, those of the running
// job apart; labels are bounded.
// Counters are of this process: they hold no work that an earlier run of a resumed job did.
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

// A counter that each mode has. Counters of one name differ by the value of a label.
struct CounterRow {
  std::string_view name, help;
  std::string_view label, value;  // beside {mode}; empty: none
};

// Increments by the index of a counter's row. They come with each step, and take no heap while there are so few.
using CounterValues = absl::InlinedVector<double, 24>;
// Counts by the index of the cause's name.
using CountsByCause = std::array<int64_t, 16>;

// Plain numbers: telemetry sees no other room.
struct GraphCacheCounts {
  int64_t steps = 0;
  CounterValues counters;
  CountsByCause captures_by_cause{}, misses_by_cause{};
};
struct GraphCacheUse {
  int64_t entries = 0, entry_bytes = 0;
  int64_t capacity = 0;  // -1: no bound
  int64_t cut_executables = 0;
};
struct GraphCacheState {
  std::vector<GraphCacheUse> modes;  // by the index of the mode's name; those that are missing hold nothing
  int64_t shared_bytes = 0;
  bool frozen = false;
  absl::Time freeze_time = absl::InfinitePast();  // InfinitePast: never
};

class GraphCacheMetrics {
 public:
  // `mode_names`, `cause_names`: the label values of {mode} and {cause}. Borrows the registry.
  GraphCacheMetrics(prometheus::Registry& registry, const std::vector<CounterRow>& counters,
                    const std::vector<std::string_view>& mode_names, const std::vector<std::string_view>& cause_names);
  ~GraphCacheMetrics();

  // Raises the counters of a mode, whose index is its name's, and
  // permafrost_graph_cache_{captures,misses}_by_cause_total{mode,cause}.
  void Add(size_t mode, const GraphCacheCounts& increments);
  // Sets the series of the running job; nullopt: none runs, and these series are absent:
  // permafrost_graph_cache_{entries,entry_bytes, capacity_entries,cut_executables}{mode} (capacity without bound:
  // +Inf), permafrost_graph_cache_{shared_bytes,bytes, frozen,frozen_timestamp_seconds} (absent: not frozen yet)
  void SetRunning(const std::optional<GraphCacheState>& state);
  // permafrost_torch_storage_{bytes,peak_bytes}, permafrost_torch_storage_allocations_total; called before each scrape.
  void SetTorchStorage(int64_t bytes, int64_t peak_bytes, int64_t allocations_total);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
