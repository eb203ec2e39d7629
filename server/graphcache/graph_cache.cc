#include "graphcache/graph_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::graphcache {
namespace {

bool KeepsNothing(Policy policy) { return policy == Policy::kNever || policy == Policy::kClearPerStep; }

std::string_view StepName(Mode mode) { return mode == Mode::kTrain ? "training" : "evaluation"; }

BatchShape CeilingOf(const std::vector<BatchShape>& rungs) {
  ShapeCounter shapes;
  for (const BatchShape& rung : rungs) shapes.Add(rung);
  return Ceiling(shapes.Counts());
}

}  // namespace

GraphCache::GraphCache(GraphCacheSetup setup, Compiler& compiler) : setup_(std::move(setup)), compiler_(compiler) {
  state_.options = setup_.options;
  state_.freeze_point = FindPoint();
  state_.train_ceiling = setup_.plan.train_ceiling;
  state_.eval_ceiling = CeilingOf(setup_.plan.eval_rungs);
  state_.planned_train_shapes = setup_.plan.train_shapes;
  AnnounceFreezePoint();
}

absl::StatusOr<StepResult> GraphCache::Run(Mode mode, Batch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(StepResult result, RunStep(mode, batch, step));
  if (mode != Mode::kTrain || !IsFreezeDue()) return result;
  result.reset();  // the captures of the freeze use its memory again
  PF_RETURN_IF_ERROR(Freeze(step + 1));
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunStep(Mode mode, Batch& batch, int64_t step) {
  const BatchShape own = batch.least_padded();
  const BatchShape capture_shape = CaptureShape(mode, own);
  Entry* held = Find(mode, own);
  if (held == nullptr) held = Find(mode, capture_shape);
  Entry* const larger = held == nullptr && state_.frozen ? FindCheapest(mode, own) : nullptr;
  const Lookup lookup{.exact = held != nullptr, .larger = larger != nullptr, .broken = broken(mode)};
  if (state_.frozen && Admit(state_.options, /*frozen=*/false, lookup) == Action::kCaptureKeep) {
    ++stats(mode).rejected_inserts;
  }
  switch (Admit(state_.options, state_.frozen, lookup)) {
    case Action::kReplay:
    case Action::kReplayPadded:
      if (Entry* const serving = held != nullptr ? held : larger) return Serve(*serving, batch, step);
      break;
    case Action::kCaptureKeep: {
      PF_ASSIGN_OR_RETURN(Entry * made, Insert(mode, capture_shape, step));
      if (made == nullptr) return RunEager(mode, own, batch, step);
      PF_ASSIGN_OR_RETURN(StepResult result, Replay(*made, batch, step));
      ++stats(mode).misses;
      return result;
    }
    case Action::kCaptureDrop: {
      PF_ASSIGN_OR_RETURN(const Captured made, Capture(mode, own));
      if (made.executable == nullptr) return RunEager(mode, own, batch, step);
      if (state_.frozen) ++stats(mode).frozen_captures;
      PF_ASSIGN_OR_RETURN(StepResult result, RunPadded(mode, own, batch, step, [&](const StepInputs& inputs) {
                            return made.executable->Replay(inputs);
                          }));
      ++stats(mode).misses;
      ++stats(mode).transient_steps;
      return result;
    }
    case Action::kRunEager: {
      bool& reported = reported_fallback_[static_cast<size_t>(mode)];
      if (state_.frozen && state_.options.on_miss == OnMiss::kPad && !lookup.broken && !std::exchange(reported, true)) {
        Report(absl::StrCat("the frozen graph cache holds no executable that a ", AbslView(StepName(mode)),
                            " batch of ", ToString(own), " fits into: it runs eager, as all others like it will"),
               /*warning=*/true);
      }
      return RunEager(mode, own, batch, step);
    }
    case Action::kReject:
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat("the frozen graph cache holds no executable of ", ToString(own),
                                                     " for ", AbslView(StepName(mode)), ", and on_miss is reject")),
          "GRAPH_CACHE_MISS", {{"mode", std::string(kModeNames.Name(mode))}, {"shape", ToString(own)}});
  }
  return absl::InternalError("the step was not admitted to any way of running");
}

absl::StatusOr<StepResult> GraphCache::Serve(Entry& entry, Batch& batch, int64_t step) {
  PF_RETURN_IF_ERROR(CaptureAgain(entry));
  if (entry.executable == nullptr) return RunEager(entry.info.mode, entry.info.shape, batch, step);
  const bool padded = entry.info.shape != batch.least_padded();
  PF_ASSIGN_OR_RETURN(StepResult result, Replay(entry, batch, step));
  ModeStats& mode_stats = stats(entry.info.mode);
  ++(padded ? mode_stats.padded_hits : mode_stats.hits);
  ++(padded ? entry.info.padded_hits : entry.info.hits);
  return result;
}

absl::StatusOr<StepResult> GraphCache::Replay(Entry& entry, Batch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(StepResult result,
                      RunPadded(entry.info.mode, entry.info.shape, batch, step,
                                [&](const StepInputs& inputs) { return entry.executable->Replay(inputs); }));
  entry.info.last_use = setup_.now();
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunEager(Mode mode, const BatchShape& shape, Batch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(StepResult result, RunPadded(mode, shape, batch, step, [&](const StepInputs& inputs) {
                        return compiler_.RunEager(mode, inputs);
                      }));
  ++stats(mode).misses;
  ++stats(mode).eager_steps;
  return result;
}

absl::StatusOr<StepResult> GraphCache::RunPadded(
    Mode mode, const BatchShape& shape, Batch& batch, int64_t step,
    const std::function<absl::StatusOr<StepResult>(const StepInputs&)>& run) {
  const BatchShape real = batch.real();
  PF_ASSIGN_OR_RETURN(const StepInputs* inputs, batch.PadTo(shape, step));
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

BatchShape GraphCache::CaptureShape(Mode mode, const BatchShape& own) const {
  if (mode != Mode::kEval || state_.options.policy != Policy::kFreeze) return own;
  const BatchShape* best = nullptr;
  for (const BatchShape& rung : setup_.plan.eval_rungs) {
    if (rung.Holds(own) && (best == nullptr || Rows(rung) < Rows(*best))) best = &rung;
  }
  return best == nullptr ? own : *best;
}

GraphCache::Entry* GraphCache::Find(Mode mode, const BatchShape& shape) const {
  const auto it = by_key_.find(Key(mode, shape));
  return it == by_key_.end() ? nullptr : it->second;
}

GraphCache::Entry* GraphCache::FindCheapest(Mode mode, const BatchShape& shape) const {
  const std::vector<Entry*>& entries = by_rows_[static_cast<size_t>(mode)];
  const auto first = std::ranges::lower_bound(entries, Rows(shape), {}, RowsOf);
  const auto found = std::find_if(first, entries.end(), [&](const Entry* e) { return e->info.shape.Holds(shape); });
  return found == entries.end() ? nullptr : *found;
}

absl::StatusOr<GraphCache::Captured> GraphCache::Capture(Mode mode, const BatchShape& shape) {
  const absl::Duration begin = setup_.elapsed();
  absl::StatusOr<std::unique_ptr<Executable>> made = compiler_.Capture(mode, shape);
  const double seconds = absl::ToDoubleSeconds(setup_.elapsed() - begin);
  ModeStats& s = stats(mode);
  s.capture_seconds += seconds;
  if (!made.ok()) {
    if (GetReason(made.status()).reason != kGraphBreakReason) return made.status();
    RecordBreak(mode, made.status());
    return Captured();
  }
  ++s.captures;
  return Captured{.executable = *std::move(made), .seconds = seconds};
}

absl::StatusOr<GraphCache::Entry*> GraphCache::Insert(Mode mode, const BatchShape& shape, int64_t step) {
  PF_ASSIGN_OR_RETURN(Captured made, Capture(mode, shape));
  if (made.executable == nullptr) return nullptr;
  auto entry = std::make_unique<Entry>();
  entry->info = {.mode = mode,
                 .shape = shape,
                 .bytes = made.executable->bytes(),
                 .capture_seconds = made.seconds,
                 .created_step = step};
  entry->executable = std::move(made.executable);
  return &Keep(std::move(entry));
}

absl::Status GraphCache::CaptureAgain(Entry& entry) {
  if (!std::exchange(entry.awaits_recapture, false)) return absl::OkStatus();
  ModeStats& s = stats(entry.info.mode);
  absl::StatusOr<Captured> made = Capture(entry.info.mode, entry.info.shape);
  if (!made.ok()) {
    entry.awaits_recapture = true;
    return made.status();
  }
  --s.awaiting_recapture;
  s.entry_bytes -= std::exchange(entry.info.bytes, 0);
  if (made->executable == nullptr) return absl::OkStatus();
  ++s.recaptures;
  entry.executable = std::move(made->executable);
  s.entry_bytes += entry.info.bytes = entry.executable->bytes();
  return absl::OkStatus();
}

GraphCache::Entry& GraphCache::Keep(std::unique_ptr<Entry> entry) {
  ModeStats& s = stats(entry->info.mode);
  ++s.entries;
  s.entry_bytes += entry->info.bytes;
  by_key_[Key(entry->info.mode, entry->info.shape)] = entry.get();
  std::vector<Entry*>& by_rows = by_rows_[static_cast<size_t>(entry->info.mode)];
  by_rows.insert(std::ranges::upper_bound(by_rows, Rows(entry->info.shape), {}, RowsOf), entry.get());
  return *entries_.emplace_back(std::move(entry));
}

void GraphCache::RecordBreak(Mode mode, const absl::Status& error) {
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
  if (!std::exchange(broken(mode), true)) {
    Report(absl::StrCat("graph break: the ", AbslView(StepName(mode)),
                        " step cannot be captured and runs eager: ", op.empty() ? "" : absl::StrCat(op, ": "), why),
           /*warning=*/true);
  }
}

void GraphCache::DropAll() {
  by_key_.clear();
  by_rows_ = {};
  entries_.clear();
  for (ModeStats& s : state_.modes) {
    s.entries = 0;
    s.entry_bytes = 0;
    s.awaiting_recapture = 0;
  }
}

FreezePoint GraphCache::FindPoint() const {
  const int64_t rungs = std::ssize(setup_.plan.train_rungs), wanted = state_.options.freeze_at;
  if (rungs == 0) return FindFreezePoint(wanted, setup_.batch_size, setup_.sizes, setup_.plan.known_train_shapes);
  // There will never be more shapes than rungs, and the freeze captures them all.
  if (wanted == 0) return {.freeze_at = 1, .source = FreezeSource::kSchedule};
  return {.freeze_at = std::min(wanted, rungs), .source = FreezeSource::kExplicit};
}

bool GraphCache::IsFreezeDue() const {
  return state_.options.policy == Policy::kFreeze && state_.armed && !state_.frozen &&
         state_.freeze_point.freeze_at > 0 && state_.of(Mode::kTrain).entries >= state_.freeze_point.freeze_at;
}

absl::Status GraphCache::Freeze(int64_t step) {
  PF_RETURN_IF_ERROR(CaptureCeilings(step));
  state_.frozen = true;
  state_.freeze_step = step;
  state_.freeze_time = setup_.now();
  Report(absl::StrCat("graph cache frozen after step ", step, " with ", state_.of(Mode::kTrain).entries,
                      " training and ", state_.of(Mode::kEval).entries, " evaluation executables"),
         /*warning=*/false);
  return absl::OkStatus();
}

absl::Status GraphCache::CaptureCeilings(int64_t step) {
  std::vector<Key> wanted;
  // Nothing was planned where the ceiling holds no graph.
  if (setup_.plan.train_ceiling.graphs > 0) wanted.emplace_back(Mode::kTrain, setup_.plan.train_ceiling);
  for (const BatchShape& rung : setup_.plan.train_rungs) {
    if (rung != setup_.plan.train_ceiling) wanted.emplace_back(Mode::kTrain, rung);
  }
  for (const BatchShape& rung : setup_.plan.eval_rungs) wanted.emplace_back(Mode::kEval, rung);
  for (const auto& [mode, shape] : wanted) {
    if (broken(mode) || Find(mode, shape) != nullptr) continue;
    PF_RETURN_IF_ERROR(Insert(mode, shape, step).status());
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
  // Only now: who waits for the command reads these.
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
      return absl::OkStatus();
    case CommandKind::kClear:
      DropAll();
      RetryBreaks();
      return state_.frozen ? CaptureCeilings(step) : absl::OkStatus();
  }
  return absl::InternalError("the command is of no known kind");
}

absl::Status GraphCache::UpdatePolicy(const PolicyUpdate& update, int64_t step) {
  state_.options = Updated(state_.options, update);
  // What a miss means is no reason to thaw.
  if (!update.policy && !update.freeze_at) return absl::OkStatus();
  state_.freeze_point = FindPoint();
  state_.frozen = false;
  state_.armed = true;
  RetryBreaks();
  if (KeepsNothing(state_.options.policy)) DropAll();
  AnnounceFreezePoint();
  return IsFreezeDue() ? Freeze(step) : absl::OkStatus();
}

void GraphCache::Restore(const Snapshot& snapshot, const std::vector<EntryInfo>& entries) {
  state_ = snapshot;
  state_.freeze_point = FindPoint();
  state_.train_ceiling = setup_.plan.train_ceiling;
  state_.eval_ceiling = CeilingOf(setup_.plan.eval_rungs);
  state_.planned_train_shapes = setup_.plan.train_shapes;
  DropAll();
  for (const EntryInfo& info : entries) {
    auto entry = std::make_unique<Entry>();
    entry->info = info;
    entry->awaits_recapture = true;
    Keep(std::move(entry));
    ++stats(info.mode).awaiting_recapture;
  }
  Report(absl::StrCat("graph cache resumed", state_.frozen ? ", frozen," : "", " with ",
                      state_.of(Mode::kTrain).entries, " training and ", state_.of(Mode::kEval).entries,
                      " evaluation executables, each captured again when it is first used"),
         /*warning=*/false);
}

int64_t GraphCache::Capacity(Mode mode) const {
  if (KeepsNothing(state_.options.policy)) return 0;
  const int64_t entries = state_.of(mode).entries;
  if (state_.frozen) return entries;
  if (state_.options.policy != Policy::kFreeze) return -1;
  if (mode == Mode::kEval) return std::max(entries, static_cast<int64_t>(setup_.plan.eval_rungs.size()));
  if (state_.freeze_point.freeze_at == 0 || !state_.armed) return -1;
  return std::max({entries, state_.freeze_point.freeze_at + 1, static_cast<int64_t>(setup_.plan.train_rungs.size())});
}

void GraphCache::AnnounceFreezePoint() const {
  if (state_.options.policy != Policy::kFreeze) return;
  const FreezePoint& point = state_.freeze_point;
  if (point.source == FreezeSource::kNone) {
    Report(absl::StrCat("the graph cache never freezes by itself: ", point.no_formula_reason), /*warning=*/true);
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

Snapshot GraphCache::snapshot() const {
  Snapshot snapshot = state_;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) snapshot.of(mode).capacity = Capacity(mode);
  snapshot.shared_bytes = compiler_.shared_bytes();
  return snapshot;
}

std::vector<EntryInfo> GraphCache::entries() const {
  std::vector<EntryInfo> infos;
  infos.reserve(entries_.size());
  for (const std::unique_ptr<Entry>& entry : entries_) infos.push_back(entry->info);
  return infos;
}

}  // namespace permafrost::graphcache
