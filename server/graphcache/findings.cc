#include "graphcache/findings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {
namespace {

// The number of captures and misses that are logged for each cause and mode. Later ones are counted without a log
// line.
constexpr int64_t kLoggedOfACause = 3;
// The fraction of max_executables at which the log begins to warn.
constexpr double kNearLimit = 0.8;

std::string_view CauseText(Cause cause) { return kCauseNames.Name(cause); }

std::string_view LastLine(int64_t count) {
  return count == kLoggedOfACause ? "; others of this cause are counted" : "";
}

}  // namespace

bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step) {
  if (every <= 0) return false;
  if (mode == Mode::kTrain) return step == 1 || (step > 0 && step % every == 0);
  return (eval_audit_step == 0 && step > 0) || step / every > eval_audit_step / every;
}

bool IsProduct(std::string_view op) { return op == "aten::mm" || op == "aten::addmm"; }

const std::vector<StepProfile>& StepProfiles::list() const {
  static const auto& none = *new std::vector<StepProfile>();
  return list_ == nullptr ? none : *list_;
}

void StepProfiles::Set(StepProfile profile) {
  std::vector<StepProfile> all = list();
  std::erase_if(all, [&](const StepProfile& p) { return p.mode == profile.mode; });
  all.push_back(std::move(profile));
  std::ranges::sort(all, {}, &StepProfile::mode);
  Assign(std::move(all));
}

void StepProfiles::Assign(std::vector<StepProfile> list) {
  list_ = std::make_shared<const std::vector<StepProfile>>(std::move(list));
}

// The methods of GraphCache that find the causes of captures and misses, audit replays, and watch the limit. They
// turn their findings into counts, log lines and, in a strict cache, errors.

Cause GraphCache::WhyMissed(Mode mode, const Batch& batch, const BatchShape& shape, bool dynamic) const {
  const ModeStats& s = of(mode);
  const PlannedMode& planned = planned_[static_cast<size_t>(mode)];
  const auto holds = [&](int64_t BatchShape::*size) {
    return std::ranges::any_of(entries_.all(), [&](const std::unique_ptr<Entry>& e) {
      return e->info.mode == mode && !e->info.dynamic && e->info.shape.*size == shape.*size;
    });
  };
  return FindCause(
      {.mode = mode,
       .graph_break = s.broken,
       .keeps_nothing = KeepsNothing(state_.options.policy),
       .dropped = dynamic ? s.hits + s.padded_hits + s.misses > 0 : dropped_[static_cast<size_t>(mode)].contains(shape),
       .full = state_.frozen ? planned.most < std::min<int64_t>(planned.wanted, 1) : IsFull(mode, shape),
       .dynamic = dynamic,
       .partial = setup_.has_partial[static_cast<size_t>(mode)] && batch.real().graphs < setup_.batch_size,
       .nodes_held = holds(&BatchShape::nodes),
       .edges_held = holds(&BatchShape::edges)});
}

void GraphCache::CountCapture(const CaptureOf& of, double seconds) {
  ModeStats& s = stats(of.mode);
  ++s.captures;
  const int64_t count = ++s.captures_by_cause.of(of.cause);
  if (of.shape) dropped_[static_cast<size_t>(of.mode)].erase(*of.shape);
  if (count > kLoggedOfACause) return;
  Report(absl::StrCat("captured the ", AbslView(StepName(of.mode)), " step of ",
                      of.shape ? Text(*of.shape) : "every shape", " in ", static_cast<int64_t>(seconds * 1e3),
                      " ms: ", AbslView(CauseText(of.cause)), AbslView(LastLine(count))),
         /*warning=*/false);
}

void GraphCache::CountMiss(Mode mode, Cause cause) {
  ModeStats& s = stats(mode);
  ++s.misses;
  ++s.misses_by_cause.of(cause);
}

void GraphCache::CountEagerMiss(Mode mode, Cause cause, const BatchShape& shape) {
  CountMiss(mode, cause);
  ++stats(mode).eager_steps;
  const int64_t count = ++eager_by_cause_[static_cast<size_t>(mode)].of(cause);
  if (count > kLoggedOfACause || cause == Cause::kPolicy) return;
  Report(absl::StrCat(AbslView(StepWithArticle(mode)), " step of ", Text(shape),
                      " runs eager: ", AbslView(CauseText(cause)), AbslView(LastLine(count))),
         /*warning=*/false);
}

absl::Status GraphCache::StrictError(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("the graph cache is strict, and ", AbslView(StepWithArticle(mode)),
                                                 " step of ", Text(shape), " ", AbslView(what))),
      kStrictReason,
      {{"cause", std::string(CauseText(cause))}, {"mode", std::string(kModeNames.Name(mode))}, {"shape", Text(shape)}});
}

absl::Status GraphCache::CheckSealed(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const {
  if (!state_.options.strict || !state_.frozen) return absl::OkStatus();
  return StrictError(mode, cause, shape,
                     absl::StrCat("would ", AbslView(what), " although it is frozen: ", AbslView(CauseText(cause))));
}

void GraphCache::AnnounceStrict() const {
  const bool seals =
      state_.options.policy == spec::Policy::kFreeze && state_.freeze_point.source != FreezeSource::kNone;
  if (!state_.options.strict || seals) return;
  Report("the graph cache is strict, and never freezes by itself: a capture fails the job only once a command froze it",
         /*warning=*/true);
}

bool GraphCache::IsAtLimit() const { return std::ssize(entries_.all()) >= LimitOf(state_.options); }

bool GraphCache::IsFull(Mode mode, const BatchShape& shape) const {
  if (IsAtLimit()) return true;
  const bool freezes = state_.options.policy == spec::Policy::kFreeze && state_.armed && !state_.frozen;
  if (!freezes || state_.freeze_point.freeze_at == 0 || state_.options.max_executables == 0) return false;
  int64_t all = std::ssize(entries_.all());
  for (const Mode m : {Mode::kTrain, Mode::kEval}) {
    if (!IsExact(m)) continue;
    for (const BatchShape& planned : PlannedShapes(m)) {
      if ((m != mode || planned != shape) && entries_.Find(m, planned) == nullptr) ++all;
    }
  }
  return all >= LimitOf(state_.options);
}

void GraphCache::ReportLimit() {
  const int64_t limit = state_.options.max_executables, held = std::ssize(entries_.all());
  if (limit == 0 || static_cast<double>(held) < kNearLimit * static_cast<double>(limit)) return;
  if (!std::exchange(reported_near_limit_, true)) {
    Report(absl::StrCat("the graph cache holds ", held, " of at most ", limit, " executables (max_executables)"),
           /*warning=*/true);
  }
  if (held < limit || std::exchange(reported_limit_, true)) return;
  Report(absl::StrCat("the graph cache holds ", held,
                      " executables, its limit: other shapes are padded into them, or run eager where none is larger"),
         /*warning=*/true);
}

void GraphCache::ReportPlannedLimit() {
  if (of(Mode::kTrain).cut_executables + of(Mode::kEval).cut_executables == 0) ReportLimit();
}

absl::StatusOr<GraphCache::Replayed> GraphCache::AuditOrReplay(Executable& executable, const ReplayedStep& replayed,
                                                               const StepInputs& inputs) {
  const Mode mode = replayed.mode;
  std::optional<AuditedStep> audited;
  if (IsAuditDue(mode, state_.options.audit_every, replayed.step, state_.eval_audit_step)) {
    PF_ASSIGN_OR_RETURN(audited, executable.ReplayAudited(inputs));
  }
  if (!audited) {
    PF_ASSIGN_OR_RETURN(StepResult result, executable.Replay(inputs));
    return Replayed{.result = std::move(result)};
  }
  ++stats(mode).audits;
  if (mode == Mode::kEval) state_.eval_audit_step = replayed.step;
  state_.profiles.Set({.mode = mode,
                       .shape = replayed.shape,
                       .step = replayed.step,
                       .replay_seconds = audited->replay_seconds,
                       .eager_seconds = audited->eager_seconds,
                       .product_seconds = audited->product_seconds,
                       .operators = std::move(audited->operators),
                       .lines = std::move(audited->lines)});
  if (audited->difference) PF_RETURN_IF_ERROR(RecordDifference(replayed, *audited->difference));
  return Replayed{.result = std::move(audited->result), .audited = true, .differs = audited->difference.has_value()};
}

absl::Status GraphCache::RecordDifference(const ReplayedStep& replayed, const Difference& difference) {
  const std::string &op = difference.op, &why = difference.why;
  const Mode mode = replayed.mode;
  ++stats(mode).audit_failures;
  const auto same = [&](const AuditFailure& f) { return f.mode == mode && f.op == op && f.why == why; };
  std::vector<AuditFailure>& all = state_.audit_failures;
  if (const auto it = std::ranges::find_if(all, same); it != all.end()) {
    ++it->count;
  } else if (all.size() < kMaxAuditFailures) {
    all.push_back({mode, replayed.shape, replayed.step, op, why, 1});
  }
  const std::string what = absl::StrCat(
      "audit: after step ", replayed.step, " the replay of ", AbslView(StepWithArticle(mode)), " step of ",
      Text(replayed.shape),
      " is not what the step does when it is run eagerly: ", op.empty() ? "" : absl::StrCat(op, ": "), why);
  if (state_.options.strict) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(what, "; the graph cache is strict")),
                      kAuditFailedReason,
                      {{"mode", std::string(kModeNames.Name(mode))},
                       {"shape", Text(replayed.shape)},
                       {"step", absl::StrCat(replayed.step)},
                       {"op", op},
                       {"why", why}});
  }
  setup_.log_error(absl::StrCat(what, "; the eager result is kept, and the executable is not used any more"));
  return absl::OkStatus();
}

void GraphCache::Withdraw(Entry& entry) {
  entry.executable.reset();
  entry.info.withdrawn = true;
  stats(entry.info.mode).entry_bytes -= std::exchange(entry.info.bytes, 0);
}

}  // namespace permafrost::graphcache
