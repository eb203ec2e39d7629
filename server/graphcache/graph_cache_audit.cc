// The handling of audited replays in a graph cache.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/cause.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {

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
                       .operators = std::move(audited->operators)});
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
