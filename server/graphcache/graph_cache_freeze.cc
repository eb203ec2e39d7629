// The methods of GraphCache that choose the form of each mode, make captures ahead, freeze the cache, and carry out
// commands.
#include <algorithm>
#include <ranges>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {

void GraphCache::ChooseKinds() {
  const bool wanted = WantsDynamic(state_.options), dynamic = wanted && no_dynamic_reason_.empty();
  if (wanted && !dynamic && state_.options.shapes == spec::Shapes::kDynamic) {
    Report(absl::StrCat("there are no dynamic executables for this job: ", no_dynamic_reason_), /*warning=*/false);
  }
  const Form form = dynamic ? Form::kDynamic : WantsLadder() ? Form::kLadder : Form::kExact;
  SetForms({form, form});
}

std::array<Form, 2> GraphCache::Forms() const {
  std::array<Form, 2> forms{};
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    // A checkpoint from another device may say that a mode is dynamic although this device has no dynamic
    // executables.
    const ModeStats& s = of(mode);
    const bool dynamic = s.dynamic && no_dynamic_reason_.empty();
    // A mode with cut executables still wants its ladder, even if the limit left none of the rungs.
    const bool ladder = setup_.pads && (s.dynamic || s.rungs > 0 || (WantsLadder() && s.cut_executables > 0));
    forms[static_cast<size_t>(mode)] = dynamic ? Form::kDynamic : ladder ? Form::kLadder : Form::kExact;
  }
  return forms;
}

void GraphCache::SetForms(std::array<Form, 2> forms) {
  const FreezePoint exact =
      FindFreezePoint(state_.options.freeze_at, setup_.batch_size, setup_.sizes, setup_.plan.known_train_shapes);
  PlannedSet planned = PlanExecutables(state_.options, setup_.plan, forms, exact.freeze_at);
  int64_t cut = 0;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const PlannedMode& before = planned_[static_cast<size_t>(mode)];
    const PlannedMode& now = planned[static_cast<size_t>(mode)];
    const bool other_rungs = now.form == Form::kLadder && before.shapes != now.shapes;
    const bool none = now.form == Form::kDynamic && now.most == 0;
    if (before.form != now.form || other_rungs || none) Drop(mode);
    ModeStats& s = stats(mode);
    s.dynamic = now.form == Form::kDynamic;
    s.rungs = now.form == Form::kLadder ? std::ssize(now.shapes) : 0;
    const bool is_planned = now.form != Form::kExact || forms[static_cast<size_t>(mode)] != Form::kExact ||
                            state_.options.policy == spec::Policy::kFreeze;
    s.cut_executables = is_planned ? now.wanted - now.most : 0;
    cut += s.cut_executables;
  }
  const bool is_new = planned != planned_;
  planned_ = std::move(planned);
  if (cut > 0 && is_new) AnnounceCut();
  ready_ = false;
}

void GraphCache::AnnounceCut() const {
  const auto part = [this](Mode mode) {
    const PlannedMode& planned = planned_[static_cast<size_t>(mode)];
    return absl::StrCat(planned.most, " of ", planned.wanted, " planned ", AbslView(StepName(mode)), " executables");
  };
  Report(
      absl::StrCat("max_executables ", state_.options.max_executables, " leaves room for ", part(Mode::kTrain), " and ",
                   part(Mode::kEval), ": batches are padded farther, or run eager where none is large enough"),
      /*warning=*/true);
}

bool GraphCache::IsRung(const EntryInfo& info) const {
  const ShapeSchedule& plan = setup_.plan;
  const std::vector<BatchShape>& rungs = info.mode == Mode::kTrain ? plan.train_rungs : plan.eval_rungs;
  // Batches above the planned rungs are rounded up to higher rungs, which the plan does not list.
  if (plan.train_rungs.empty() || rungs.empty() || !rungs.back().Holds(info.shape)) return true;
  return std::ranges::find(rungs, info.shape) != rungs.end();
}

BatchShape GraphCache::CaptureShape(Mode mode, const BatchShape& own) const {
  const bool to_rungs = mode == Mode::kEval && state_.options.policy == spec::Policy::kFreeze;
  const bool rounds = of(mode).rungs > 0 || (IsExact(mode) && to_rungs);
  const BatchShape* const best = rounds ? FindCheapest(PlannedShapes(mode), own) : nullptr;
  return best == nullptr ? own : *best;
}

std::vector<GraphCache::Ahead> GraphCache::AllAhead() const {
  const bool freezes = state_.options.policy == spec::Policy::kFreeze && state_.armed;
  std::vector<Ahead> ahead;
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    const Mode mode = entry->info.mode;
    // After a resume, an exact shape is captured again only when it is used, since there may be thousands of such
    // shapes.
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
    // The largest shape is captured first, so that the others fit into its storage.
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
      // If this mode has run steps before, a command dropped the executables that served those steps.
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

FreezePoint GraphCache::FindPoint() const {
  const int64_t wanted = state_.options.freeze_at;
  // Dynamic and ladder modes capture everything before the first step, and nothing after it.
  if (!IsExact(Mode::kTrain)) {
    return {.freeze_at = std::max<int64_t>(of(Mode::kTrain).rungs, 1), .source = FreezeSource::kSchedule};
  }
  // If batches are rounded up to rungs, no formula is needed: the freeze captures all rungs, and no other shape
  // occurs.
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
    if (!IsExact(mode)) continue;  // CaptureNext makes the captures of the other forms
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
  // These fields are set last, because a client that waits for the command reads them.
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
  // Only these four fields thaw the cache.
  if (!update.policy && !update.freeze_at && !update.shapes && !update.rungs) {
    if (!update.on_miss && !update.max_executables) return absl::OkStatus();
    // Both fields change the plan: max_executables bounds the number of rungs, and on_miss decides with which shapes
    // a cache of exact shapes is sealed.
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
