#include "graphcache/graph_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::graphcache {
namespace {

Action AdmitFrozenMiss(spec::OnMiss on_miss, const Lookup& lookup) {
  switch (on_miss) {
    case spec::OnMiss::kPad:
      return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
    case spec::OnMiss::kEager:
      return Action::kRunEager;
    case spec::OnMiss::kTransient:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::OnMiss::kReject:
      return Action::kReject;
  }
  return Action::kRunEager;
}

}  // namespace

Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup) {
  switch (options.policy) {
    case spec::Policy::kNever:
      return Action::kRunEager;
    case spec::Policy::kClearPerStep:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::Policy::kAlways:
    case spec::Policy::kFreeze:
      if (lookup.exact) return Action::kReplay;
      if (frozen) return AdmitFrozenMiss(options.on_miss, lookup);
      if (lookup.full) return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
      return lookup.broken ? Action::kRunEager : Action::kCaptureKeep;
  }
  return Action::kRunEager;
}

namespace {

int64_t RowsOf(const Entry* entry) { return Rows(entry->info.shape); }

}  // namespace

Entry& EntrySet::Add(std::unique_ptr<Entry> entry) {
  const auto mode = static_cast<size_t>(entry->info.mode);
  if (entry->info.dynamic) {
    dynamic_[mode] = entry.get();
  } else {
    by_key_[Key(entry->info.mode, entry->info.shape)] = entry.get();
    std::vector<Entry*>& by_rows = by_rows_[mode];
    by_rows.insert(std::ranges::upper_bound(by_rows, Rows(entry->info.shape), {}, RowsOf), entry.get());
  }
  return *entries_.emplace_back(std::move(entry));
}

Entry* EntrySet::Find(Mode mode, const BatchShape& shape) const {
  const auto it = by_key_.find(Key(mode, shape));
  return it == by_key_.end() ? nullptr : it->second;
}

Entry* EntrySet::FindCheapest(Mode mode, const BatchShape& shape) const {
  const std::vector<Entry*>& entries = by_rows_[static_cast<size_t>(mode)];
  const auto first = std::ranges::lower_bound(entries, Rows(shape), {}, RowsOf);
  const auto found = std::find_if(first, entries.end(), [&](const Entry* e) { return e->info.shape.Holds(shape); });
  return found == entries.end() ? nullptr : *found;
}

void EntrySet::Drop(Mode mode) {
  dynamic_[static_cast<size_t>(mode)] = nullptr;
  by_rows_[static_cast<size_t>(mode)].clear();
  std::erase_if(by_key_, [mode](const auto& row) { return row.first.first == mode; });
  std::erase_if(entries_, [mode](const std::unique_ptr<Entry>& entry) { return entry->info.mode == mode; });
}

namespace {

BatchShape CeilingOf(const std::vector<BatchShape>& rungs) {
  ShapeCounter shapes;
  for (const BatchShape& rung : rungs) shapes.Add(rung);
  return Ceiling(shapes.Counts());
}

}  // namespace

GraphCache::GraphCache(GraphCacheSetup setup, Compiler& compiler)
    : setup_(std::move(setup)), compiler_(compiler), no_dynamic_reason_(compiler.NoDynamicReason()) {
  state_.options = setup_.pads ? setup_.options : WithoutPadding(setup_.options);
  ChooseKinds();
  state_.freeze_point = FindPoint();
  state_.train_ceiling = setup_.plan.train_ceiling;
  state_.eval_ceiling = CeilingOf(setup_.plan.eval_rungs);
  state_.planned_train_shapes = setup_.plan.train_shapes;
  state_.planned_rungs = std::ssize(setup_.plan.train_rungs);
  state_.of_seeds = setup_.of_seeds;
  AnnounceFreezePoint();
  AnnounceStrict();
}

absl::StatusOr<StepResult> GraphCache::Run(Mode mode, Batch& batch, int64_t step) {
  while (!ready_) PF_RETURN_IF_ERROR(CaptureNext(step));
  PF_ASSIGN_OR_RETURN(StepResult result, RunStep(mode, batch, step));
  if (mode != Mode::kTrain || !IsFreezeDue()) return result;
  result.reset();  // the captures of the freeze reuse the result's memory
  PF_RETURN_IF_ERROR(Freeze(step + 1));
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunStep(Mode mode, Batch& batch, int64_t step) {
  if (of(mode).dynamic) {
    if (!setup_.pads && batch.dynamic_shape() != batch.least_padded()) {
      const BatchShape own = batch.least_padded();
      return RunEager(mode, WhyMissed(mode, batch, own, /*dynamic=*/false), {.shape = own}, batch, step);
    }
    if (Entry* const held = entries_.FindDynamic(mode)) return Serve(*held, batch, step);
    if (!state_.frozen && !IsAtLimit()) {
      const Cause cause = WhyMissed(mode, batch, batch.least_padded(), /*dynamic=*/true);
      PF_ASSIGN_OR_RETURN(Entry * made, InsertDynamic(mode, cause, step));
      if (made != nullptr) return ReplayNew(*made, cause, batch, step);
    }
  }
  const BatchShape own = batch.least_padded();
  const BatchShape capture_shape = CaptureShape(mode, own);
  Entry* held = entries_.Find(mode, own);
  if (held == nullptr) held = entries_.Find(mode, capture_shape);
  const bool full = held == nullptr && IsFull(mode, capture_shape), closed = state_.frozen || full;
  Entry* const larger = held == nullptr && closed && setup_.pads ? entries_.FindCheapest(mode, own) : nullptr;
  Lookup lookup{.exact = held != nullptr, .larger = larger != nullptr, .broken = broken(mode)};
  if (closed && Admit(state_.options, /*frozen=*/false, lookup) == Action::kCaptureKeep) {
    ++stats(mode).rejected_inserts;
  }
  lookup.full = full;
  const auto why = [&] { return WhyMissed(mode, batch, capture_shape, /*dynamic=*/false); };
  const bool is_cut = state_.frozen && IsCutToNothing(mode);
  switch (Admit(state_.options, state_.frozen, lookup)) {
    case Action::kReplay:
    case Action::kReplayPadded:
      if (Entry* const serving = held != nullptr ? held : larger) return Serve(*serving, batch, step);
      break;
    case Action::kCaptureKeep: {
      const Cause cause = why();
      PF_ASSIGN_OR_RETURN(Entry * made, Insert(mode, cause, capture_shape, step));
      if (made == nullptr) return RunEager(mode, Cause::kGraphBreak, {.shape = own}, batch, step);
      return ReplayNew(*made, cause, batch, step);
    }
    case Action::kCaptureDrop:
      if (is_cut) return RunEager(mode, Cause::kLimit, {.shape = own}, batch, step);
      return RunTransient(mode, why(), own, batch, step);
    case Action::kRunEager: {
      if (state_.frozen && state_.options.on_miss == spec::OnMiss::kPad && !lookup.broken) {
        ReportOversize(mode,
                       absl::StrCat("the frozen graph cache holds no executable that ", AbslView(StepWithArticle(mode)),
                                    " batch of ", Text(own), " fits into: it runs eager, as all others like it will"));
      }
      return RunEager(mode, why(), {.shape = own}, batch, step);
    }
    case Action::kReject:
      if (is_cut) return RunEager(mode, Cause::kLimit, {.shape = own}, batch, step);
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat("the frozen graph cache holds no executable of ", Text(own),
                                                     " for ", AbslView(StepName(mode)), ", and on_miss is reject")),
          "GRAPH_CACHE_MISS", {{"mode", std::string(kModeNames.Name(mode))}, {"shape", Text(own)}});
  }
  return absl::InternalError("the step was not admitted to any way of running");
}

absl::StatusOr<StepResult> GraphCache::Serve(Entry& entry, Batch& batch, int64_t step) {
  PF_RETURN_IF_ERROR(CaptureAgain(entry));
  const Mode mode = entry.info.mode;
  const Padding padding = PaddingFor(entry, batch);
  if (entry.executable == nullptr) {
    return RunEager(mode, entry.info.withdrawn ? Cause::kAudit : Cause::kGraphBreak, padding, batch, step);
  }
  const bool padded = !padding.dynamic && padding.shape != batch.least_padded();
  PF_ASSIGN_OR_RETURN(StepResult result, Replay(entry, batch, step));
  ++(padded ? stats(mode).padded_hits : stats(mode).hits);
  ++(padded ? entry.info.padded_hits : entry.info.hits);
  if (!entry.info.shape.Holds(padding.shape)) {
    ++stats(mode).oversize_steps;
    ReportOversize(mode, absl::StrCat(AbslView(StepWithArticle(mode)), " batch of ", Text(padding.shape),
                                      " is larger than the ", Text(entry.info.shape),
                                      " that the dynamic executable has room for: it takes the rest from the heap, as "
                                      "all others like it will"));
  }
  return result;
}

absl::StatusOr<StepResult> GraphCache::Replay(Entry& entry, Batch& batch, int64_t step) {
  const Mode mode = entry.info.mode;
  const Padding padding = PaddingFor(entry, batch);
  const auto replay = [&](const StepInputs& inputs) -> absl::StatusOr<StepResult> {
    const absl::Duration begin = setup_.elapsed();
    PF_ASSIGN_OR_RETURN(Replayed replayed, AuditOrReplay(*entry.executable, {mode, padding.shape, step}, inputs));
    if (replayed.differs) Withdraw(entry);
    if (!replayed.audited) {
      ++entry.info.replays;
      entry.info.replay_seconds += absl::ToDoubleSeconds(setup_.elapsed() - begin);
    }
    return std::move(replayed.result);
  };
  PF_ASSIGN_OR_RETURN(StepResult result, RunPadded(mode, padding, batch, step, replay));
  entry.info.last_use = setup_.now();
  return result;
}

absl::StatusOr<StepResult> GraphCache::ReplayNew(Entry& entry, Cause cause, Batch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(StepResult result, Replay(entry, batch, step));
  CountMiss(entry.info.mode, cause);
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunTransient(Mode mode, Cause cause, const BatchShape& shape, Batch& batch,
                                                    int64_t step) {
  PF_RETURN_IF_ERROR(CheckSealed(mode, cause, shape, "be captured"));
  PF_ASSIGN_OR_RETURN(const Captured made, Capture({.mode = mode, .cause = cause, .shape = shape}));
  if (made.executable == nullptr) {
    PF_RETURN_IF_ERROR(BreakMode(mode, made.broken));
    return RunEager(mode, Cause::kGraphBreak, {.shape = shape}, batch, step);
  }
  if (state_.frozen) ++stats(mode).frozen_captures;
  const auto replay = [&](const StepInputs& inputs) -> absl::StatusOr<StepResult> {
    PF_ASSIGN_OR_RETURN(Replayed replayed, AuditOrReplay(*made.executable, {mode, shape, step}, inputs));
    return std::move(replayed.result);
  };
  PF_ASSIGN_OR_RETURN(StepResult result, RunPadded(mode, {.shape = shape}, batch, step, replay));
  CountMiss(mode, cause);
  ++stats(mode).transient_steps;
  return result;
}

void GraphCache::ReportOversize(Mode mode, std::string_view line) {
  if (!std::exchange(reported_oversize_[static_cast<size_t>(mode)], true)) Report(line, /*warning=*/true);
}

absl::StatusOr<StepResult> GraphCache::RunEager(Mode mode, Cause cause, const Padding& padding, Batch& batch,
                                                int64_t step) {
  PF_RETURN_IF_ERROR(CheckSealed(mode, cause, padding.shape, "run eager"));
  PF_ASSIGN_OR_RETURN(StepResult result, RunPadded(mode, padding, batch, step, [&](const StepInputs& inputs) {
                        return compiler_.RunEager(mode, inputs);
                      }));
  CountEagerMiss(mode, cause, padding.shape);
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunPadded(
    Mode mode, const Padding& padding, Batch& batch, int64_t step,
    const std::function<absl::StatusOr<StepResult>(const StepInputs&)>& run) {
  const BatchShape real = batch.real();
  const BatchShape& shape = padding.shape;
  PF_ASSIGN_OR_RETURN(const StepInputs* inputs, padding.dynamic ? batch.PadDynamic(step) : batch.PadTo(shape, step));
  PF_ASSIGN_OR_RETURN(StepResult result, run(*inputs));
  ModeStats& s = stats(mode);
  s.graphs += real.graphs;
  s.nodes += real.nodes;
  s.edges += real.edges;
  s.padding_graphs += shape.graphs - real.graphs;
  s.padding_nodes += shape.nodes - real.nodes;
  s.padding_edges += shape.edges - real.edges;
  return result;
}

absl::StatusOr<GraphCache::Captured> GraphCache::Capture(const CaptureOf& of) {
  const absl::Duration begin = setup_.elapsed();
  absl::StatusOr<std::unique_ptr<Executable>> made = !of.shape          ? compiler_.CaptureDynamic(of.mode)
                                                     : IsExact(of.mode) ? compiler_.Capture(of.mode, *of.shape)
                                                                        : compiler_.CaptureRung(of.mode, *of.shape);
  if (made.ok() && of.shape && IsAhead(of.cause)) PF_RETURN_IF_ERROR(compiler_.WarmUp(of.mode, *of.shape));
  const double seconds = absl::ToDoubleSeconds(setup_.elapsed() - begin);
  stats(of.mode).capture_seconds += seconds;
  if (!made.ok()) {
    if (GetReason(made.status()).reason != kGraphBreakReason) return made.status();
    return Captured{.executable = nullptr, .seconds = seconds, .broken = made.status()};
  }
  CountCapture(of, seconds);
  return Captured{.executable = *std::move(made), .seconds = seconds, .broken = {}};
}

absl::StatusOr<Entry*> GraphCache::Insert(Mode mode, Cause cause, const BatchShape& shape, int64_t step) {
  PF_ASSIGN_OR_RETURN(Captured made, Capture({.mode = mode, .cause = cause, .shape = shape}));
  if (made.executable == nullptr) {
    // If a dynamic capture failed before this capture did, both are one graph break, which counts once.
    resistance_[static_cast<size_t>(mode)] = absl::OkStatus();
    PF_RETURN_IF_ERROR(BreakMode(mode, made.broken));
    return nullptr;
  }
  TellResistance(mode);
  Entry& entry = Keep(std::move(made), {.mode = mode, .shape = shape, .created_step = step});
  if (!IsAhead(cause)) ReportLimit();
  return &entry;
}

absl::StatusOr<Entry*> GraphCache::InsertDynamic(Mode mode, Cause cause, int64_t step) {
  PF_ASSIGN_OR_RETURN(Captured made, Capture({.mode = mode, .cause = cause, .shape = std::nullopt}));
  if (made.executable == nullptr) {
    if (state_.options.shapes == spec::Shapes::kDynamic) PF_RETURN_IF_ERROR(StrictBreak(mode, made.broken));
    std::array<Form, 2> forms = Forms();
    forms[static_cast<size_t>(mode)] = WantsLadder() ? Form::kLadder : Form::kExact;
    SetForms(forms);
    state_.freeze_point = FindPoint();
    resistance_[static_cast<size_t>(mode)] = made.broken;
    return nullptr;
  }
  Entry& entry =
      Keep(std::move(made), {.mode = mode, .shape = DynamicRoom(mode), .created_step = step, .dynamic = true});
  if (!IsAhead(cause)) ReportLimit();
  return &entry;
}

BatchShape GraphCache::DynamicRoom(Mode mode) const {
  return AtLeastDynamic(mode == Mode::kTrain ? state_.train_ceiling : state_.eval_ceiling);
}

void GraphCache::TellResistance(Mode mode) {
  const absl::Status why = std::exchange(resistance_[static_cast<size_t>(mode)], absl::OkStatus());
  if (why.ok()) return;
  const std::string instead = of(mode).rungs == 0
                                  ? "each is captured for itself"
                                  : absl::StrCat("batches are rounded up to a ladder of ", of(mode).rungs,
                                                 of(mode).rungs == 1 ? " shape" : " shapes");
  Report(absl::StrCat("no executable serves every shape of the ", AbslView(StepName(mode)), " step, and ", instead,
                      ": ", RecordBreak(mode, why)),
         /*warning=*/true);
  if (mode == Mode::kTrain) AnnounceFreezePoint();
}

absl::Status GraphCache::CaptureAgain(Entry& entry) {
  if (!std::exchange(entry.awaits_recapture, false)) return absl::OkStatus();
  const Mode mode = entry.info.mode;
  ModeStats& s = stats(mode);
  CaptureOf of{.mode = mode, .cause = entry.recapture_cause, .shape = std::nullopt};
  if (!entry.info.dynamic) of.shape = entry.info.shape;
  absl::StatusOr<Captured> made = Capture(of);
  if (!made.ok()) {
    entry.awaits_recapture = true;
    return made.status();
  }
  --s.awaiting_recapture;
  s.entry_bytes -= std::exchange(entry.info.bytes, 0);
  if (made->executable == nullptr) {
    return BreakMode(mode, made->broken);
  }
  ++s.recaptures;
  entry.executable = std::move(made->executable);
  s.entry_bytes += entry.info.bytes = entry.executable->bytes();
  return absl::OkStatus();
}

Entry& GraphCache::Keep(Captured made, EntryInfo info) {
  info.bytes = made.executable->bytes();
  info.capture_seconds = made.seconds;
  return Add({.info = info, .executable = std::move(made.executable)});
}

Entry& GraphCache::Add(Entry entry) {
  ModeStats& s = stats(entry.info.mode);
  ++s.entries;
  s.entry_bytes += entry.info.bytes;
  return entries_.Add(std::make_unique<Entry>(std::move(entry)));
}

std::string GraphCache::RecordBreak(Mode mode, const absl::Status& error) {
  ++stats(mode).graph_breaks;
  const ErrorReason reason = GetReason(error);
  const auto detail = [&](const char* key) {
    const auto it = reason.metadata.find(key);
    return it == reason.metadata.end() ? std::string() : it->second;
  };
  const std::string op = detail("op"), why = detail("why");
  const auto same = [&](const GraphBreak& b) { return b.mode == mode && b.op == op && b.why == why; };
  if (const auto it = std::ranges::find_if(state_.graph_breaks, same); it != state_.graph_breaks.end()) {
    ++it->count;
  } else if (state_.graph_breaks.size() < kMaxGraphBreaks) {
    state_.graph_breaks.push_back({mode, op, why, 1});
  }
  return op.empty() ? why : absl::StrCat(op, ": ", why);
}

absl::Status GraphCache::StrictBreak(Mode mode, const absl::Status& error) const {
  if (!state_.options.strict) return absl::OkStatus();
  const ErrorReason reason = GetReason(error);
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("the graph cache is strict, and ", AbslView(StepWithArticle(mode)),
                                                 " step breaks: ", error.message())),
      kStrictReason,
      {{"cause", std::string(kCauseNames.Name(Cause::kGraphBreak))},
       {"mode", std::string(kModeNames.Name(mode))},
       {"op", reason.metadata.contains("op") ? reason.metadata.at("op") : ""}});
}

absl::Status GraphCache::BreakMode(Mode mode, const absl::Status& error) {
  const std::string text = RecordBreak(mode, error);
  PF_RETURN_IF_ERROR(StrictBreak(mode, error));
  if (std::exchange(broken(mode), true)) return absl::OkStatus();
  Report(absl::StrCat("graph break: the ", AbslView(StepName(mode)), " step cannot be captured and runs eager: ", text),
         /*warning=*/true);
  return absl::OkStatus();
}

void GraphCache::Drop(Mode mode) {
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    if (entry->info.mode == mode && !entry->info.dynamic) dropped_[static_cast<size_t>(mode)].insert(entry->info.shape);
  }
  entries_.Drop(mode);
  ModeStats& s = stats(mode);
  s.entries = 0;
  s.entry_bytes = 0;
  s.awaiting_recapture = 0;
}

void GraphCache::DropAll() {
  Drop(Mode::kTrain);
  Drop(Mode::kEval);
}

void GraphCache::Restore(const Snapshot& snapshot, const std::vector<EntryInfo>& entries) {
  state_ = snapshot;
  SetForms(Forms());
  state_.freeze_point = FindPoint();
  state_.train_ceiling = setup_.plan.train_ceiling;
  state_.eval_ceiling = CeilingOf(setup_.plan.eval_rungs);
  state_.planned_train_shapes = setup_.plan.train_shapes;
  state_.planned_rungs = std::ssize(setup_.plan.train_rungs);
  state_.of_seeds = setup_.of_seeds;
  DropAll();
  for (EntryInfo info : entries) {
    if (info.dynamic && !of(info.mode).dynamic) continue;
    // The job's number of replicas may have changed since the checkpoint, and with it the sizes of batches.
    if (info.dynamic) info.shape = DynamicRoom(info.mode);
    if (!info.dynamic && !IsRung(info)) {
      Report(absl::StrCat("the executable of ", Text(info.shape), " is not taken over: no batch is rounded up to it"),
             /*warning=*/true);
      // A frozen cache of exact shapes captures no new shape. Without entries at the present rungs, it would pad
      // every batch to the largest entry. So the cache is thawed, and freezes again after the run's first step, as at
      // the job's start.
      if (IsExact(info.mode)) state_.frozen = false;
      continue;
    }
    Add({.info = info, .executable = nullptr, .awaits_recapture = !info.withdrawn});
    if (!info.withdrawn) ++stats(info.mode).awaiting_recapture;
  }
  Report(
      absl::StrCat("graph cache resumed", state_.frozen ? ", frozen," : "", " with ", state_.of(Mode::kTrain).entries,
                   " training and ", state_.of(Mode::kEval).entries, " evaluation executables, each captured again ",
                   IsExact(Mode::kTrain) ? "when it is first used" : "before the next step"),
      /*warning=*/false);
}

Snapshot GraphCache::snapshot() const {
  Snapshot snapshot = state_;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) snapshot.of(mode).capacity = Capacity(mode);
  snapshot.shared_bytes = compiler_.shared_bytes();
  return snapshot;
}

std::vector<EntryInfo> GraphCache::entries() const {
  std::vector<EntryInfo> infos;
  infos.reserve(entries_.all().size());
  for (const std::unique_ptr<Entry>& entry : entries_.all()) infos.push_back(entry->info);
  return infos;
}

}  // namespace permafrost::graphcache
