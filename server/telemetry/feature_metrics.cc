#include "telemetry/feature_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "telemetry/maybe_gauge.h"
#include "telemetry/single_metric.h"

namespace permafrost::telemetry {

// References into the registry, which owns every metric; all but those behind the lock are safe to update anywhere.
struct FeatureMetrics::Series {
  explicit Series(prometheus::Registry& registry)
      : hits(OneCounter(registry, "permafrost_feature_cache_hits_total",
                        "Rows of node features that batches found in memory, or on their way there.")),
        misses(OneCounter(registry, "permafrost_feature_cache_misses_total",
                          "Rows of node features that were read from the disk for a batch.")),
        evictions(OneCounter(registry, "permafrost_feature_cache_evictions_total",
                             "Rows that gave their memory to others, or to the system.")),
        read_bytes(OneCounter(registry, "permafrost_feature_cache_read_bytes_total", "Bytes read from the disk.")),
        read_errors(OneCounter(registry, "permafrost_feature_cache_read_errors_total",
                               "Reads that failed, or brought what was not written.")),
        over_budget(OneCounter(registry, "permafrost_feature_cache_over_budget_total",
                               "Batches that took memory beyond the budget, which was too small for them.")),
        resizes(OneCounter(registry, "permafrost_feature_cache_resizes_total",
                           "Changes of the budget during a run, as memory got short or plenty.")),
        stall_seconds(OneCounter(registry, "permafrost_feature_cache_stall_seconds_total",
                                 "Time that batches waited for rows to be read.")),
        read_seconds(prometheus::BuildHistogram()
                         .Name("permafrost_feature_cache_read_seconds")
                         .Help("Time of a read, from its start to its rows being in memory.")
                         .Register(registry)
                         .Add({}, std::vector<double>(kReadSeconds.begin(), kReadSeconds.end()))),
        budget_bytes(registry, "permafrost_feature_cache_budget_bytes",
                     "Memory that the cache of the running job may take. Absent where it has none, as those below."),
        bytes(registry, "permafrost_feature_cache_bytes", "Memory that the cache of the running job takes."),
        rows(registry, "permafrost_feature_cache_rows", "Rows in the cache of the running job."),
        read_depth(registry, "permafrost_feature_cache_read_depth", "Reads at once of the running job.") {}

  prometheus::Counter &hits, &misses, &evictions, &read_bytes, &read_errors, &over_budget, &resizes, &stall_seconds;
  prometheus::Histogram& read_seconds;
  absl::Mutex mu;
  MaybeGauge budget_bytes ABSL_GUARDED_BY(mu), bytes ABSL_GUARDED_BY(mu), rows ABSL_GUARDED_BY(mu),
      read_depth ABSL_GUARDED_BY(mu);
};

FeatureMetrics::FeatureMetrics(prometheus::Registry& registry) : series_(std::make_unique<Series>(registry)) {}
FeatureMetrics::~FeatureMetrics() = default;

void FeatureMetrics::Add(const FeatureCounts& increments) {
  series_->hits.Increment(static_cast<double>(increments.hits));
  series_->misses.Increment(static_cast<double>(increments.misses));
  series_->evictions.Increment(static_cast<double>(increments.evictions));
  series_->read_bytes.Increment(static_cast<double>(increments.read_bytes));
  series_->read_errors.Increment(static_cast<double>(increments.read_errors));
  series_->over_budget.Increment(static_cast<double>(increments.over_budget));
  series_->resizes.Increment(static_cast<double>(increments.resizes));
  series_->stall_seconds.Increment(increments.stall_seconds);
  if (increments.read_seconds > 0) {
    series_->read_seconds.ObserveMultiple({increments.reads.begin(), increments.reads.end()}, increments.read_seconds);
  }
}

void FeatureMetrics::Set(const std::optional<FeatureState>& state) {
  const auto of = [&state](auto FeatureState::*member) {
    return state ? std::optional(static_cast<double>((*state).*member)) : std::nullopt;
  };
  const absl::MutexLock lock(&series_->mu);
  series_->budget_bytes.Set(of(&FeatureState::budget_bytes));
  series_->bytes.Set(of(&FeatureState::used_bytes));
  series_->rows.Set(of(&FeatureState::rows));
  series_->read_depth.Set(of(&FeatureState::depth));
}

}  // namespace permafrost::telemetry
