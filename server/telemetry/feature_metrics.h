// Metrics of the cache of node features that are read past the page cache.
// Threads: all methods are safe anywhere. Borrows the registry.
#pragma once

#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace permafrost::telemetry {

// Bounds of the histogram.
inline constexpr std::array<double, 11> kReadSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                     0.01,   0.025,   0.05,   0.1,   1};

// Plain numbers: telemetry sees no other room. Increments.
struct FeatureCounts {
  int64_t hits = 0, misses = 0, evictions = 0, read_bytes = 0, read_errors = 0, over_budget = 0, resizes = 0;
  double stall_seconds = 0;
  // Reads that took at most kReadSeconds[i], and not the bound before; the last: that took longer.
  std::array<int64_t, kReadSeconds.size() + 1> reads{};
  double read_seconds = 0;  // their sum
};

// As things are.
struct FeatureState {
  uint64_t budget_bytes = 0, used_bytes = 0, rows = 0;
  int64_t depth = 0;
};

class FeatureMetrics {
 public:
  explicit FeatureMetrics(prometheus::Registry& registry);
  ~FeatureMetrics();

  // permafrost_feature_cache_{hits,misses,evictions,read_bytes,read_errors,over_budget,resizes,stall_seconds}_total,
  // permafrost_feature_cache_read_seconds (histogram)
  void Add(const FeatureCounts& increments);
  // permafrost_feature_cache_{budget_bytes,bytes,rows,read_depth}; nullopt: no job that runs has such a cache, and they
  // are absent, as they are at first.
  void Set(const std::optional<FeatureState>& state);

 private:
  struct Series;
  const std::unique_ptr<Series> series_;
};

}  // namespace permafrost::telemetry
