// Captures that a graph cache makes before a step, so that no step waits for a capture.
#include <algorithm>
#include <ranges>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {

std::vector<GraphCache::Ahead> GraphCache::AllAhead() const {
  const bool freezes = state_.options.policy == spec::Policy::kFreeze && state_.armed;
  std::vector<Ahead> ahead;
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    const Mode mode = entry->info.mode;
    // A resume leaves each exact shape to its first use, since there may be thousands.
    const bool exact_ahead = state_.frozen && entry->recapture_cause == Cause::kDeviceEmptied;
    if (!entry->awaits_recapture || (IsExact(mode) && !exact_ahead)) continue;
    ahead.push_back({.mode = mode, .entry = entry.get(), .shape = {}});
  }
  if (!state_.frozen && !freezes) return ahead;
  int64_t room = LimitOf(state_.options) - std::ssize(entries_.all());
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (IsExact(mode) || of(mode).broken) continue;
    const std::vector<BatchShape>& planned = PlannedShapes(mode);
    if (of(mode).dynamic) {
      if (!planned.empty() && entries_.FindDynamic(mode) == nullptr && room-- > 0)
        ahead.push_back({.mode = mode, .shape = {}});
      continue;
    }
    // The largest first: the others fit into the storage that it took.
    for (const BatchShape& shape : planned | std::views::reverse) {
      if (entries_.Find(mode, shape) == nullptr && room-- > 0) ahead.push_back({.mode = mode, .shape = shape});
    }
  }
  return ahead;
}

void GraphCache::OnDeviceEmptied() {
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    if (entry->executable == nullptr || entry->awaits_recapture) continue;
    entry->awaits_recapture = true;
    entry->recapture_cause = Cause::kDeviceEmptied;
    ++stats(entry->info.mode).awaiting_recapture;
  }
  ready_ = false;
}

bool GraphCache::sealed() const {
  return state_.frozen && ready_ && of(Mode::kTrain).awaiting_recapture + of(Mode::kEval).awaiting_recapture == 0;
}

int64_t GraphCache::captures_ahead() const { return ready_ ? 0 : std::ssize(AllAhead()); }

absl::Status GraphCache::CaptureNext(int64_t step) {
  std::vector<Ahead> ahead = AllAhead();
  if (!ahead.empty()) {
    const absl::Duration begin = setup_.elapsed();
    const int64_t before = of(Mode::kTrain).captures + of(Mode::kEval).captures;
    const Ahead& next = ahead.front();
    if (next.entry != nullptr) {
      PF_RETURN_IF_ERROR(CaptureAgain(*next.entry));
    } else {
      // Where steps were served before, a command dropped what served them.
      const ModeStats& s = of(next.mode);
      const Cause cause = s.hits + s.padded_hits + s.misses > 0 ? Cause::kPolicyChange : Cause::kFreeze;
      PF_RETURN_IF_ERROR(s.dynamic ? InsertDynamic(next.mode, cause, step).status()
                                   : Insert(next.mode, cause, next.shape, step).status());
    }
    captured_ahead_ += of(Mode::kTrain).captures + of(Mode::kEval).captures - before;
    ahead_elapsed_ += setup_.elapsed() - begin;
    ahead = AllAhead();
  }
  ready_ = ahead.empty();
  if (!ready_) return absl::OkStatus();
  const absl::Duration elapsed = std::exchange(ahead_elapsed_, absl::ZeroDuration());
  if (const int64_t captured = std::exchange(captured_ahead_, 0); captured > 0) {
    Report(absl::StrFormat("graph cache warmed up before step %d: %d %s in %.2f s", step + 1, captured,
                           captured == 1 ? "capture" : "captures", absl::ToDoubleSeconds(elapsed)),
           /*warning=*/false);
  }
  if (state_.frozen) ReportPlannedLimit();
  const bool planned = !IsExact(Mode::kTrain) && !PlannedShapes(Mode::kTrain).empty();
  if (state_.options.policy == spec::Policy::kFreeze && state_.armed && !state_.frozen && planned) {
    PF_RETURN_IF_ERROR(Freeze(step));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::graphcache
