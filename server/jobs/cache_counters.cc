#include "jobs/cache_counters.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace permafrost::jobs {
namespace {

using graphcache::ModeStats;

template <class T>
T Since(T now, T before) {
  return std::max(T{0}, now - before);
}

std::vector<int64_t> Since(const graphcache::CauseCounts& now, const graphcache::CauseCounts& before) {
  std::vector<int64_t> since(now.counts.size());
  for (size_t i = 0; i < since.size(); ++i) since[i] = Since(now.counts[i], before.counts[i]);
  return since;
}

// Calls `see(row, member)` for each row that has a counter.
template <class See>
void VisitCounters(const See& see) {
  VisitFields(spec::Options<ModeStats>(), [&see](const spec::Field& field, auto member) {
    if (field.counter.name != nullptr) see(field, member);
  });
}

std::vector<double> CountersSince(const ModeStats& now, const ModeStats& before) {
  std::vector<double> since;
  VisitCounters([&](const spec::Field& /*field*/, auto member) {
    using M = std::remove_cvref_t<decltype(now.*member)>;
    if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
      since.push_back(static_cast<double>(Since(now.*member, before.*member)));
    }
  });
  return since;
}

// The counter of equal audits has those that found no difference.
ModeStats WithEqualAudits(ModeStats stats) {
  stats.audits -= stats.audit_failures;
  return stats;
}

int64_t Steps(const ModeStats& s) { return s.hits + s.padded_hits + s.misses; }

}  // namespace

std::vector<telemetry::CounterRow> CacheCounterRows() {
  const auto text = [](const char* value) { return value == nullptr ? std::string_view() : std::string_view(value); };
  std::vector<telemetry::CounterRow> rows;
  VisitCounters([&](const spec::Field& field, auto /*member*/) {
    const spec::Counter& c = field.counter;
    rows.push_back({c.name, c.help, text(c.label), text(c.value)});
  });
  return rows;
}

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
    increments[mode] = {.steps = Since(Steps(now), Steps(before)),
                        .counters = CountersSince(WithEqualAudits(now), WithEqualAudits(before)),
                        .captures_by_cause = Since(now.captures_by_cause, before.captures_by_cause),
                        .misses_by_cause = Since(now.misses_by_cause, before.misses_by_cause)};
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
