#include "jobs/cache_counters.h"

#include <algorithm>
#include <cstddef>

namespace permafrost::jobs {
namespace {

using graphcache::ModeStats;

template <class T>
T Since(T now, T before) {
  return std::max(T{0}, now - before);
}

telemetry::CountsByCause Since(const graphcache::CauseCounts& now, const graphcache::CauseCounts& before) {
  telemetry::CountsByCause since{};
  static_assert(graphcache::kCauses <= since.size());
  for (size_t i = 0; i < graphcache::kCauses; ++i) since[i] = Since(now.counts[i], before.counts[i]);
  return since;
}

int64_t Steps(const ModeStats& s) { return s.hits + s.padded_hits + s.misses; }

}  // namespace

std::array<telemetry::GraphCacheCounts, 2> CacheCounters::Advance(const graphcache::Snapshot& snapshot) {
  if (first_) {
    first_ = false;
    // A run that began anew counts from nothing, as does a job's first.
    if (resumed_ && Steps(snapshot.modes[0]) + Steps(snapshot.modes[1]) > 1) last_ = snapshot.modes;
  }
  std::array<telemetry::GraphCacheCounts, 2> increments;
  for (size_t mode = 0; mode < increments.size(); ++mode) {
    const ModeStats& now = snapshot.modes[mode];
    const ModeStats& before = last_[mode];
    increments[mode] = {.hits = Since(now.hits, before.hits),
                        .padded_hits = Since(now.padded_hits, before.padded_hits),
                        .misses = Since(now.misses, before.misses),
                        .captures = Since(now.captures, before.captures),
                        .rejected_inserts = Since(now.rejected_inserts, before.rejected_inserts),
                        .graph_breaks = Since(now.graph_breaks, before.graph_breaks),
                        .eager_steps = Since(now.eager_steps, before.eager_steps),
                        .transient_steps = Since(now.transient_steps, before.transient_steps),
                        .oversize_steps = Since(now.oversize_steps, before.oversize_steps),
                        .audits_equal = Since(now.audits - now.audit_failures, before.audits - before.audit_failures),
                        .audits_different = Since(now.audit_failures, before.audit_failures),
                        .captures_by_cause = Since(now.captures_by_cause, before.captures_by_cause),
                        .misses_by_cause = Since(now.misses_by_cause, before.misses_by_cause),
                        .capture_seconds = Since(now.capture_seconds, before.capture_seconds),
                        .nodes = Since(now.nodes, before.nodes),
                        .edges = Since(now.edges, before.edges),
                        .padding_nodes = Since(now.padding_nodes, before.padding_nodes),
                        .padding_edges = Since(now.padding_edges, before.padding_edges)};
  }
  last_ = snapshot.modes;
  return increments;
}

telemetry::GraphCacheState ToMetrics(const graphcache::Snapshot& snapshot) {
  telemetry::GraphCacheState state;
  for (const ModeStats& s : snapshot.modes)
    state.modes.push_back({s.entries, s.entry_bytes, s.capacity, s.cut_executables});
  state.shared_bytes = snapshot.shared_bytes;
  state.frozen = snapshot.frozen;
  state.freeze_time = snapshot.freeze_time;
  return state;
}

}  // namespace permafrost::jobs
