// Metrics of jobs and training. Counters and histograms exist from the start. Series of the running job are absent
// while no job runs. Labels are bounded.
// Threads: all methods are safe anywhere.
#pragma once

#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace permafrost::telemetry {

// Metrics of the feature cache. This cache holds node features that are read from disk without the page cache.
// Threads: all methods are safe anywhere. Borrows the registry.

// The bucket bounds of permafrost_feature_cache_read_seconds, in seconds.
inline constexpr std::array<double, 11> kReadSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                     0.01,   0.025,   0.05,   0.1,   1};

// Increments of the counters. They are plain numbers, since telemetry may not include other folders' headers.
struct FeatureCounts {
  int64_t hits = 0, misses = 0, evictions = 0, read_bytes = 0, read_errors = 0, over_budget = 0, resizes = 0;
  double stall_seconds = 0;
  // reads[i] counts the reads that took at most kReadSeconds[i] and longer than kReadSeconds[i - 1]. The last entry
  // counts all reads longer than the last bound.
  std::array<int64_t, kReadSeconds.size() + 1> reads{};
  double read_seconds = 0;  // sum over all reads
};

// The present state of the feature cache.
struct FeatureState {
  uint64_t budget_bytes = 0, used_bytes = 0, rows = 0;
  int64_t depth = 0;
};

// The comment above each method names the series that the method updates.
class FeatureMetrics {
 public:
  explicit FeatureMetrics(prometheus::Registry& registry);
  ~FeatureMetrics();

  // Raises the histogram permafrost_feature_cache_read_seconds and the counters
  // permafrost_feature_cache_{hits,misses,evictions,read_bytes,read_errors,over_budget,resizes,stall_seconds}_total.
  void Add(const FeatureCounts& increments);
  // Sets permafrost_feature_cache_{budget_bytes,bytes,rows,read_depth}. nullopt means that no running job has a
  // feature cache. The series are then absent, as at the start.
  void Set(const std::optional<FeatureState>& state);

 private:
  struct Series;
  const std::unique_ptr<Series> series_;
};

// The counts of one rank. They are plain numbers, since telemetry may not include other folders' headers.
struct RankCounts {
  int64_t steps = 0;
  double seconds = 0, exchange_seconds = 0;
};
struct StepCounts {
  int64_t steps = 0, graphs = 0, nodes = 0, edges = 0, padding_nodes = 0, padding_edges = 0, skipped_batches = 0;
  int64_t exchanged_bytes = 0;
  double exchange_seconds = 0;
  std::vector<RankCounts> ranks;  // by rank
};
struct StepSeconds {
  double batch = 0, forward = 0, backward = 0, optimizer = 0;
};

// The present state of the sampler that runs ahead of the step.
struct LookAheadState {
  int64_t depth = 0, ready_batches = 0;
  double resident_ratio = 0;  // the share of the pages looked at that were in memory
};
struct LookAheadCounts {
  int64_t stalls = 0, sampled_edges = 0, cut_batches = 0, wanted_pages = 0, advised_bytes = 0, major_faults = 0;
};

// The comment above each method names the series that the method updates.
class JobMetrics {
 public:
  // `state_names` are the label values of permafrost_jobs{state}. Borrows the registry.
  JobMetrics(prometheus::Registry& registry, const std::vector<std::string_view>& state_names);
  ~JobMetrics();

  // permafrost_jobs{state}
  void SetJobs(std::string_view state, int64_t count);
  // permafrost_job_queue_wait_seconds (histogram): the time from the job's creation or requeue until it runs on the
  // device
  void ObserveQueueWait(absl::Duration wait);
  // permafrost_jobs_finished_total{state}
  void CountFinished(std::string_view state);
  // permafrost_job_failures_total{reason}; a reason that is not in the table in job_metrics.cc counts as OTHER
  void CountFailure(std::string_view reason);
  // permafrost_job_resumes_total
  void CountResume();
  // permafrost_job_retries_total
  void CountRetry();
  // permafrost_jobs_expired_total
  void CountExpired();
  // permafrost_job_log_dropped_bytes_total
  void CountDroppedLog(int64_t bytes);
  // permafrost_job_preemptions_total
  void CountPreemption();
  // permafrost_store_failures_total
  void CountFailedStore();
  // permafrost_checkpoint_failures_total
  void CountFailedCheckpoint();
  // permafrost_job_log_failures_total
  void CountFailedLogLine();
  // permafrost_job_directories_quarantined_total
  void CountQuarantined(int64_t directories);
  // permafrost_jobs_unreadable
  void SetUnreadable(int64_t jobs);
  // permafrost_train_{steps,graphs,nodes,edges,padding_nodes,padding_edges,skipped_batches}_total,
  // permafrost_train_{exchanged_bytes,exchange_seconds}_total,
  // permafrost_train_rank_{steps,seconds,exchange_seconds}_total{rank}
  void AddSteps(const StepCounts& increments);
  // permafrost_train_step_seconds{phase} and permafrost_train_whole_step_seconds (histograms), with one observation
  // per step (and phase); permafrost_train_last_step_timestamp_seconds
  void ObserveStep(const StepSeconds& seconds);
  // permafrost_train_epoch_seconds (histogram)
  void ObserveEpoch(absl::Duration duration);
  // permafrost_checkpoint_seconds (histogram), permafrost_checkpoint_timestamp_seconds (absent before the first)
  void ObserveCheckpoint(absl::Duration duration);
  // Sets the series of the running job: permafrost_train_{epoch,loss,graphs_per_second} and
  // permafrost_checkpoint_age_seconds. The age is the time since the run's newest checkpoint, whose work a crash
  // would lose. If there is no checkpoint yet, it is the time since the first call of this method.
  void SetRunning(int64_t epoch, double loss, double graphs_per_second);
  // Removes the series of SetRunning and SetLookAhead, since no job runs.
  void SetIdle();
  // Sets the series of the running job: permafrost_job_lookahead_{depth,ready_batches,resident_ratio}. nullopt means
  // that the job uses no sampler.
  void SetLookAhead(const std::optional<LookAheadState>& state);
  // permafrost_job_lookahead_{stalls,sampled_edges,cut_batches,wanted_pages,advised_bytes,major_faults}_total
  void AddLookAhead(const LookAheadCounts& increments);
  // permafrost_feature_cache_*
  FeatureMetrics& features() { return features_; }
  // Refreshes permafrost_checkpoint_age_seconds. Called before each scrape.
  void BeforeScrape();

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  FeatureMetrics features_;
};

}  // namespace permafrost::telemetry
