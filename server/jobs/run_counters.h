// Turns the totals of a run, counted since the job's first step, into increments for the process's counters. Threads:
// one thread. Invariant: no increment is negative, and none counts work of an earlier run of the job.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "graphcache/snapshot.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "train/runner.h"

namespace permafrost::jobs {

// Counts from a run's progress.
class RunCounters {
 public:
  struct Increment {
    telemetry::StepCounts counts;
    telemetry::LookAheadCounts look_ahead;
    telemetry::FeatureCounts features;
    std::optional<telemetry::StepSeconds> step;  // when a step was done
  };

  // `resumed`: the job ran before, so its first progress may hold steps of that run. Their graphs and nodes are not
  // known here, so of a resumed run's first progress only the step itself is counted.
  explicit RunCounters(bool resumed) : resumed_(resumed) {}

  Increment Advance(const train::Progress& progress);
  static std::optional<telemetry::LookAheadState> StateOf(const std::optional<train::LookAhead>& look_ahead);
  // nullopt: the run has no cache of features.
  static std::optional<telemetry::FeatureState> FeaturesOf(const std::optional<train::LookAhead>& look_ahead);

 private:
  const bool resumed_;
  bool first_ = true;
  train::Progress last_;
  int64_t most_skipped_ = 0;  // a run that went back skips the same batches again
};

// The counters on /metrics of a mode's statistics, from the rows of graphcache::ModeStats.
std::vector<telemetry::CounterRow> CacheCounterRows();

// Counts from a run's graph cache statistics.
class CacheCounters {
 public:
  // `resumed`: the job ran before, so its first snapshot may hold that run's steps, and counting begins from it.
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
