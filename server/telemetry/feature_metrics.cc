#include "telemetry/feature_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <vector>

#include "telemetry/single_metric.h"

namespace permafrost::telemetry {

// References into the registry, which owns every metric; all of them are safe to update anywhere.
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
        budget_bytes(OneGauge(registry, "permafrost_feature_cache_budget_bytes",
                              "Memory that the cache of the running job may take; 0 when none has one.")),
        bytes(OneGauge(registry, "permafrost_feature_cache_bytes", "Memory that the cache of the running job takes.")),
        rows(OneGauge(registry, "permafrost_feature_cache_rows", "Rows in the cache of the running job.")),
        read_depth(OneGauge(registry, "permafrost_feature_cache_read_depth",
                            "Reads at once of the running job; 0 when it reads through the mapping.")) {}

  prometheus::Counter &hits, &misses, &evictions, &read_bytes, &read_errors, &over_budget, &resizes, &stall_seconds;
  prometheus::Histogram& read_seconds;
  prometheus::Gauge &budget_bytes, &bytes, &rows, &read_depth;
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

void FeatureMetrics::Set(const FeatureState& state) {
  series_->budget_bytes.Set(static_cast<double>(state.budget_bytes));
  series_->bytes.Set(static_cast<double>(state.used_bytes));
  series_->rows.Set(static_cast<double>(state.rows));
  series_->read_depth.Set(static_cast<double>(state.depth));
}

}  // namespace permafrost::telemetry
