// Turns a run's graph cache statistics, which count since the job's first step, into increments for the process's
// counters, as run_counters.h does for progress.
// Threads: one thread.
// Invariant: no increment is negative, and none counts work of an earlier run of the job.
#pragma once

#include <array>
#include <vector>

#include "graphcache/snapshot.h"
#include "telemetry/graph_cache_metrics.h"

namespace permafrost::jobs {

// The counters on /metrics of a mode's statistics, from the rows of graphcache::ModeStats.
std::vector<telemetry::CounterRow> CacheCounterRows();

class CacheCounters {
 public:
  // `resumed`: the job ran before, so its first snapshot may hold steps of that run, and is what counting begins from.
  explicit CacheCounters(bool resumed) : resumed_(resumed) {}

  // By mode; counters in the order of CacheCounterRows.
  std::array<telemetry::GraphCacheCounts, 2> Advance(const graphcache::Snapshot& snapshot);

 private:
  const bool resumed_;
  bool first_ = true;
  std::array<graphcache::ModeStats, 2> last_;
};

telemetry::GraphCacheState ToMetrics(const graphcache::Snapshot& snapshot);

}  // namespace permafrost::jobs
