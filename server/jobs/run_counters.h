// Turns the totals of a run into increments of the process's counters. The totals count from the job's first step.
// Threads: one thread.
// Invariant: no increment is negative, and none counts work of an earlier run of the job.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "graphcache/snapshot.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "train/runner.h"

namespace permafrost::jobs {

// Makes increments from a run's progress.
class RunCounters {
 public:
  struct Increment {
    telemetry::StepCounts counts;
    telemetry::LookAheadCounts look_ahead;
    telemetry::FeatureCounts features;
    std::optional<telemetry::StepSeconds> step;  // set if a step was done
  };

  // `resumed` means that the job ran before, so the first progress may include steps of earlier runs. The graphs and
  // nodes of those steps are not known here. So a resumed run's first progress counts only its newest step.
  explicit RunCounters(bool resumed) : resumed_(resumed) {}

  Increment Advance(const train::Progress& progress);
  static std::optional<telemetry::LookAheadState> StateOf(const std::optional<train::LookAhead>& look_ahead);
  // Returns nullopt if the run has no feature cache.
  static std::optional<telemetry::FeatureState> FeaturesOf(const std::optional<train::LookAhead>& look_ahead);

 private:
  const bool resumed_;
  bool first_ = true;
  train::Progress last_;
  int64_t most_skipped_ = 0;  // largest count so far: a run that was rewound skips its batches again
};

// Returns the counters that /metrics shows for each mode, from the rows of graphcache::ModeStats.
std::vector<telemetry::CounterRow> CacheCounterRows();

// Makes increments from a run's graph cache statistics.
class CacheCounters {
 public:
  // `resumed` means that the job ran before, so the first snapshot may include steps of earlier runs. Counting then
  // begins at the first snapshot.
  explicit CacheCounters(bool resumed) : resumed_(resumed) {}

  // Returns the increments by mode, with counters in the order of CacheCounterRows.
  std::array<telemetry::GraphCacheCounts, 2> Advance(const graphcache::Snapshot& snapshot);

 private:
  const bool resumed_;
  bool first_ = true;
  std::array<graphcache::ModeStats, 2> last_;
};

telemetry::GraphCacheState ToMetrics(const graphcache::Snapshot& snapshot);

}  // namespace permafrost::jobs
