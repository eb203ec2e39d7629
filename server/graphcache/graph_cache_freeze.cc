// The freezing of a graph cache, the captures it then makes, and commands to it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {

FreezePoint GraphCache::FindPoint() const {
  const int64_t wanted = state_.options.freeze_at;
  // Everything is captured before the first step, and nothing after it.
  if (!IsExact(Mode::kTrain)) {
    return {.freeze_at = std::max<int64_t>(of(Mode::kTrain).rungs, 1), .source = FreezeSource::kSchedule};
  }
  // There will never be more executables than rungs, and the freeze captures them all.
  const int64_t rungs = std::ssize(setup_.plan.train_rungs);
  if (rungs == 0) return FindFreezePoint(wanted, setup_.batch_size, setup_.sizes, setup_.plan.known_train_shapes);
  if (wanted == 0) return {.freeze_at = 1, .source = FreezeSource::kSchedule};
  return {.freeze_at = std::min(wanted, rungs), .source = FreezeSource::kExplicit};
}

bool GraphCache::IsFreezeDue() const {
  return state_.options.policy == spec::Policy::kFreeze && state_.armed && !state_.frozen &&
         state_.freeze_point.freeze_at > 0 &&
         (state_.of(Mode::kTrain).entries >= state_.freeze_point.freeze_at || IsFull(Mode::kTrain, {}));
}

absl::Status GraphCache::Freeze(int64_t step) {
  PF_RETURN_IF_ERROR(CaptureCeilings(Cause::kFreeze, step));
  Seal(step);
  return absl::OkStatus();
}

void GraphCache::Seal(int64_t step) {
  state_.frozen = true;
  state_.freeze_step = step;
  state_.freeze_time = setup_.now();
  ready_ = AllAhead().empty();
  const std::string when = step == 0 ? "before the first step" : absl::StrCat("after step ", step);
  const std::string with = ready_ ? absl::StrCat(" with ", of(Mode::kTrain).entries, " training and ",
                                                 of(Mode::kEval).entries, " evaluation executables")
                                  : "; what is planned is captured before the next step";
  Report(absl::StrCat("graph cache frozen ", when, with), /*warning=*/false);
  if (ready_) ReportPlannedLimit();
}

absl::Status GraphCache::CaptureCeilings(Cause cause, int64_t step) {
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (!IsExact(mode)) continue;  // CaptureNext's
    for (const BatchShape& shape : PlannedShapes(mode)) {
      if (broken(mode) || IsAtLimit() || entries_.Find(mode, shape) != nullptr) continue;
      PF_RETURN_IF_ERROR(Insert(mode, cause, shape, step).status());
    }
  }
  return absl::OkStatus();
}

absl::Status GraphCache::Apply(const Command& command, int64_t step) {
  if (const absl::Status sensible = Check(command, state_.options); !sensible.ok()) {
    Report(absl::StrCat("graph cache command ", command.sequence, " (", AbslView(kCommandNames.Name(command.kind)),
                        ") changes nothing: ", sensible.message()),
           /*warning=*/true);
  } else {
    PF_RETURN_IF_ERROR(Execute(command, step));
  }
  // These are set last, because those who wait for the command read them.
  state_.command_sequence = command.sequence;
  state_.command_step = step;
  return absl::OkStatus();
}

absl::Status GraphCache::Execute(const Command& command, int64_t step) {
  switch (command.kind) {
    case CommandKind::kUpdatePolicy:
      return UpdatePolicy(command.update, step);
    case CommandKind::kFreeze:
      return state_.frozen ? absl::OkStatus() : Freeze(step);
    case CommandKind::kThaw:
      state_.frozen = false;
      state_.armed = false;
      ready_ = false;
      return absl::OkStatus();
    case CommandKind::kClear:
      DropAll();
      reported_near_limit_ = reported_limit_ = false;
      RetryBreaks();
      ChooseKinds();
      state_.freeze_point = FindPoint();
      ready_ = false;
      return state_.frozen ? CaptureCeilings(Cause::kPolicyChange, step) : absl::OkStatus();
  }
  return absl::InternalError("the command is of no known kind");
}

absl::Status GraphCache::UpdatePolicy(const PolicyUpdate& update, int64_t step) {
  state_.options = Updated(state_.options, update);
  if (!setup_.pads) state_.options = WithoutPadding(state_.options);
  // A change of what a miss means is no reason to thaw.
  if (!update.policy && !update.freeze_at && !update.shapes && !update.rungs) {
    if (!update.on_miss && !update.max_executables) return absl::OkStatus();
    // Both change what is planned: a ladder of as many rungs as the limit leaves, and what exact shapes are sealed
    // with.
    SetForms(Forms());
    state_.freeze_point = FindPoint();
    if (update.max_executables) reported_near_limit_ = reported_limit_ = false;
    return state_.frozen ? CaptureCeilings(Cause::kPolicyChange, step) : absl::OkStatus();
  }
  state_.frozen = false;
  state_.armed = true;
  RetryBreaks();
  ChooseKinds();
  state_.freeze_point = FindPoint();
  if (KeepsNothing(state_.options.policy)) DropAll();
  AnnounceFreezePoint();
  return IsFreezeDue() ? Freeze(step) : absl::OkStatus();
}

int64_t GraphCache::Capacity(Mode mode) const {
  if (KeepsNothing(state_.options.policy)) return 0;
  const int64_t entries = state_.of(mode).entries;
  if (state_.frozen) return entries;
  if (of(mode).dynamic) return planned_[static_cast<size_t>(mode)].most;
  if (of(mode).rungs > 0) return std::max(entries, of(mode).rungs);
  if (state_.options.policy != spec::Policy::kFreeze) return -1;
  const int64_t planned = std::ssize(PlannedShapes(mode)), most = std::max(entries, LimitOf(state_.options));
  if (mode == Mode::kEval) return std::max(entries, planned);
  if (state_.freeze_point.freeze_at == 0 || !state_.armed) return -1;
  const int64_t ceiling = planned > 0 ? 1 : 0;
  return std::min(most, std::max({entries, state_.freeze_point.freeze_at + ceiling, planned}));
}

void GraphCache::AnnounceFreezePoint() const {
  if (state_.options.policy != spec::Policy::kFreeze) return;
  const FreezePoint& point = state_.freeze_point;
  if (point.source == FreezeSource::kNone) {
    Report(absl::StrCat("the graph cache never freezes by itself: ", point.no_formula_reason), /*warning=*/true);
    return;
  }
  if (of(Mode::kTrain).dynamic) {
    Report("the graph cache freezes before the first step: each mode's step is captured once for every shape",
           /*warning=*/false);
    return;
  }
  if (const int64_t rungs = of(Mode::kTrain).rungs; rungs > 0) {
    Report(
        absl::StrCat("the graph cache freezes before the first step: training batches are rounded up to a ladder of ",
                     rungs, rungs == 1 ? " shape" : " shapes"),
        /*warning=*/false);
    return;
  }
  std::string line = absl::StrCat("the graph cache freezes after ", point.freeze_at, " training shape",
                                  point.freeze_at == 1 ? "" : "s");
  if (const size_t rungs = setup_.plan.train_rungs.size(); rungs > 0) {
    absl::StrAppend(&line, ": batches are rounded up to ", rungs, " planned ones");
  } else if (point.source == FreezeSource::kSchedule) {
    absl::StrAppend(&line, ", of ", setup_.plan.train_shapes > 0 ? "" : "at least ", setup_.plan.known_train_shapes,
                    " that the schedule plans: ", point.no_formula_reason,
                    ", which leaves the formula without an answer");
  }
  Report(line, /*warning=*/false);
}

}  // namespace permafrost::graphcache
