// Turns a run's progress, which counts since the job's first step, into increments for the process's counters.
// Threads: one thread.
// Invariant: no increment is negative, and none counts work of an earlier run of the job.
#pragma once

#include <optional>

#include "telemetry/job_metrics.h"
#include "train/runner.h"

namespace permafrost::jobs {

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

}  // namespace permafrost::jobs
