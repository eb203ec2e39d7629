#include "jobs/run_counters.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace permafrost::jobs {
namespace {

using graphcache::ModeStats;

double Since(double now, double before) { return std::max(0.0, now - before); }
int64_t Since(int64_t now, int64_t before) { return std::max<int64_t>(0, now - before); }

double Total(const train::PhaseSeconds& p) { return p.batch + p.forward + p.backward + p.optimizer; }

static_assert(telemetry::kReadSeconds == data::RowCounters::kReadSeconds);

telemetry::FeatureCounts FeatureIncrements(const std::optional<data::RowReading>& before,
                                           const std::optional<data::RowReading>& now) {
  if (!now) return {};
  const data::RowCounters c = data::Since(before.value_or(data::RowReading()).counters, now->counters);
  telemetry::FeatureCounts out{.hits = Since(c.hits, 0),
                               .misses = Since(c.misses, 0),
                               .evictions = Since(c.evictions, 0),
                               .read_bytes = Since(c.read_bytes, 0),
                               .read_errors = Since(c.read_errors, 0),
                               .over_budget = Since(c.over_budget, 0),
                               .resizes = Since(c.resizes, 0),
                               .stall_seconds = Since(c.stall_seconds, 0.0),
                               .read_seconds = Since(c.read_seconds_sum, 0.0)};
  for (size_t i = 0; i < out.reads.size(); ++i) out.reads[i] = Since(c.read_seconds[i], 0);
  return out;
}

telemetry::CountsByCause Since(const graphcache::CauseCounts& now, const graphcache::CauseCounts& before) {
  telemetry::CountsByCause since{};
  static_assert(graphcache::kCauses <= since.size());
  for (size_t i = 0; i < graphcache::kCauses; ++i) since[i] = Since(now.counts[i], before.counts[i]);
  return since;
}

// Calls `see(field, member)` for each field of ModeStats that has a counter.
template <class See>
void VisitCounters(const See& see) {
  VisitFields(spec::Options<ModeStats>(), [&see](const spec::Field& field, auto member) {
    if (field.counter.name != nullptr) see(field, member);
  });
}

telemetry::CounterValues CountersSince(const ModeStats& now, const ModeStats& before) {
  telemetry::CounterValues since;
  VisitCounters([&](const spec::Field& /*field*/, auto member) {
    using M = std::remove_cvref_t<decltype(now.*member)>;
    if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
      since.push_back(static_cast<double>(Since(now.*member, before.*member)));
    }
  });
  return since;
}

// Reduces `audits` to the audits that found no difference, as the counter of equal audits shows them.
ModeStats WithEqualAudits(ModeStats stats) {
  stats.audits -= stats.audit_failures;
  return stats;
}

int64_t Steps(const ModeStats& s) { return s.hits + s.padded_hits + s.misses; }

}  // namespace

std::optional<telemetry::LookAheadState> RunCounters::StateOf(const std::optional<train::LookAhead>& look_ahead) {
  if (!look_ahead) return std::nullopt;
  const data::PageCounters& pages = look_ahead->pages;
  const double resident = static_cast<double>(pages.resident_pages);
  return telemetry::LookAheadState{look_ahead->depth, look_ahead->ready,
                                   pages.sampled_pages > 0 ? resident / static_cast<double>(pages.sampled_pages) : 0};
}

std::optional<telemetry::FeatureState> RunCounters::FeaturesOf(const std::optional<train::LookAhead>& look_ahead) {
  if (!look_ahead || !look_ahead->rows) return std::nullopt;
  const data::RowCounters& counters = look_ahead->rows->counters;
  return telemetry::FeatureState{.budget_bytes = counters.budget_bytes,
                                 .used_bytes = counters.used_bytes,
                                 .rows = counters.rows,
                                 .depth = look_ahead->rows->reader.depth};
}

RunCounters::Increment RunCounters::Advance(const train::Progress& progress) {
  if (first_) {
    first_ = false;
    // A run that started from the beginning counts from 0, like the first run of a job.
    if (resumed_ && progress.step > 1) {
      last_ = progress;
      most_skipped_ = progress.skipped_batches;
      // These totals count from the start of the run, not of the job.
      last_.phase_seconds = {};
      last_.look_ahead.reset();
      last_.exchange.reset();
      // Phase seconds count from the start of the run. If they are not 0, the run has done a step, and this step is
      // counted.
      if (Total(progress.phase_seconds) > 0) --last_.step;
    }
  }
  Increment out;
  out.counts.steps = Since(progress.step, last_.step);
  out.counts.graphs = Since(progress.graphs, last_.graphs);
  out.counts.nodes = Since(progress.nodes, last_.nodes);
  out.counts.edges = Since(progress.edges, last_.edges);
  out.counts.padding_nodes = Since(progress.padding_nodes, last_.padding_nodes);
  out.counts.padding_edges = Since(progress.padding_edges, last_.padding_edges);
  out.counts.skipped_batches = Since(progress.skipped_batches, most_skipped_);
  most_skipped_ = std::max(most_skipped_, progress.skipped_batches);
  static const train::Exchange kNone;
  const train::Exchange& exchange = progress.exchange ? *progress.exchange : kNone;
  const train::Exchange& exchange_before = last_.exchange ? *last_.exchange : kNone;
  // The counters of a new team begin at 0.
  const bool is_new = exchange.exchanges < exchange_before.exchanges;
  out.counts.exchanged_bytes = Since(exchange.sent_bytes, is_new ? 0 : exchange_before.sent_bytes);
  out.counts.exchange_seconds = Since(exchange.seconds, is_new ? 0.0 : exchange_before.seconds);
  for (size_t r = 0; r < exchange.ranks.size(); ++r) {
    const train::RankProgress& now = exchange.ranks[r];
    train::RankProgress before = r < exchange_before.ranks.size() ? exchange_before.ranks[r] : train::RankProgress();
    // The counters of a new team begin at 0.
    if (now.steps < before.steps) before = train::RankProgress();
    out.counts.ranks.push_back({.steps = Since(now.steps, before.steps),
                                .seconds = Since(now.seconds, before.seconds),
                                .exchange_seconds = Since(now.exchange_seconds, before.exchange_seconds)});
  }
  const train::LookAhead ahead = progress.look_ahead.value_or(train::LookAhead());
  const train::LookAhead ahead_before = last_.look_ahead.value_or(train::LookAhead());
  out.look_ahead.stalls = Since(ahead.stalls, ahead_before.stalls);
  out.look_ahead.sampled_edges = Since(ahead.sampled_edges, ahead_before.sampled_edges);
  out.look_ahead.cut_batches = Since(ahead.cut_batches, ahead_before.cut_batches);
  out.look_ahead.wanted_pages = Since(ahead.pages.wanted_pages, ahead_before.pages.wanted_pages);
  out.look_ahead.advised_bytes = Since(ahead.pages.advised_bytes, ahead_before.pages.advised_bytes);
  out.look_ahead.major_faults = Since(ahead.pages.major_faults, ahead_before.pages.major_faults);
  out.features = FeatureIncrements(ahead_before.rows, ahead.rows);
  if (out.counts.steps > 0) {
    const train::PhaseSeconds& now = progress.phase_seconds;
    const train::PhaseSeconds& before = last_.phase_seconds;
    out.step = telemetry::StepSeconds{Since(now.batch, before.batch), Since(now.forward, before.forward),
                                      Since(now.backward, before.backward), Since(now.optimizer, before.optimizer)};
  }
  last_ = progress;
  return out;
}

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
    // A run that started from the beginning counts from 0, like the first run of a job.
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
