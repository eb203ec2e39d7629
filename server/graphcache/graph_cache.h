// Keeps the executables of one job, and decides what each step does with them.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "graphcache/command.h"
#include "graphcache/executable.h"
#include "graphcache/findings.h"
#include "graphcache/shape_plan.h"
#include "graphcache/snapshot.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// Decides how a step is run: a pure function of the policy, of what the cache holds, and of the batch's shape.
// Threads: values and a pure function.
enum class Action {
  kReplay,        // replay the executable of exactly this shape
  kReplayPadded,  // pad the batch and replay the larger executable with the fewest rows
  kCaptureKeep,   // capture this shape, keep the executable, replay it
  kCaptureDrop,   // capture this shape, replay the executable, drop it
  kRunEager,      // run the step uncaptured
  kReject,        // fail the job without running the step
};

// The part of the cache that could serve a shape.
struct Lookup {
  bool exact = false;   // an executable of exactly this shape
  bool larger = false;  // an executable that the batch fits into when it is padded
  bool broken = false;  // a graph break was found: the step cannot be captured
  bool full = false;    // as many executables are held as may be
};

// kNever and kClearPerStep take nothing from the cache, and never freeze. kAlways and kFreeze replay an executable of
// the exact shape; a new shape is captured and kept until the cache is `frozen`, and then handled as on_miss says.
// Where it is full, and not frozen, a new shape is padded, or runs eager where nothing larger is held. Where the step
// cannot be captured, kRunEager takes the place of a capture; kReject is returned all the same.
Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup);

// The executables that a graph cache holds, and which of them serves a shape.
// Threads: the device thread only. Owns every executable.
struct Entry {
  EntryInfo info;
  std::unique_ptr<Executable> executable;  // nullptr: awaits its recapture, or could not be captured again
  bool awaits_recapture = false;
  Cause recapture_cause = Cause::kResume;
};

class EntrySet {
 public:
  Entry& Add(std::unique_ptr<Entry> entry);
  // Returns the entry of exactly this shape; nullptr: there is none.
  Entry* Find(Mode mode, const BatchShape& shape) const;
  // The one of the fewest rows that holds `shape`.
  Entry* FindCheapest(Mode mode, const BatchShape& shape) const;
  // The one for every shape, which none of the others finds.
  Entry* FindDynamic(Mode mode) const { return dynamic_[static_cast<size_t>(mode)]; }
  void Drop(Mode mode);
  // All entries, in the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& all() const { return entries_; }

 private:
  using Key = std::pair<Mode, BatchShape>;

  std::vector<std::unique_ptr<Entry>> entries_;
  std::map<Key, Entry*> by_key_;
  // Entries by Mode, ordered by their rows, then by their addition.
  std::array<std::vector<Entry*>, 2> by_rows_;
  std::array<Entry*, 2> dynamic_{};  // by Mode
};

struct GraphCacheSetup {
  spec::PolicyOptions options;
  int64_t batch_size = 32;  // graphs of a full training batch
  // For each mode, whether only the last batch of an epoch has fewer than batch_size graphs. Where batches are composed
  // by size, any of them may.
  std::array<bool, 2> has_partial = {true, true};
  GraphSizes sizes;  // for the freeze point, also after a policy command
  ShapeSchedule plan;
  bool of_seeds = false;  // graphs of its shapes are the seed nodes of a batch
  // False: a step reads its batch's sizes from the shape, so a batch runs only at its least_padded() shape. There is no
  // ladder, a miss is not padded, and a batch that a dynamic executable would pad runs eager.
  bool pads = true;
  std::function<absl::Time()> now;  // for show
  // Since any moment, by a clock that nobody sets.
  std::function<absl::Duration()> elapsed;
  // Called once for each thing that a user should know: a freeze point, a freeze, a graph break, a fallback, a resume.
  std::function<void(std::string_view line, bool warning)> log;
  // Called for each failed audit.
  std::function<void(std::string_view line)> log_error;
};

// The reason of the error that fails a strict job, with metadata "cause", "mode" and "shape", and "op" of a graph
// break.
inline constexpr char kStrictReason[] = "GRAPH_CACHE_STRICT";

// Returns the mode as messages name it, such as "training".
inline std::string_view StepName(Mode mode) { return mode == Mode::kTrain ? "training" : "evaluation"; }

// The executables of one job, and what each step does with them.
// Threads: the device thread only.
// Invariant: while frozen, no step adds an entry. Owns every executable; borrows the compiler.
class GraphCache {
 public:
  GraphCache(GraphCacheSetup setup, Compiler& compiler);

  // Runs one step of `mode`. `step`: optimizer steps done before it. Returns what the step returned, or null where it
  // froze the cache: the captures of a freeze use that memory again.
  // A mode is dynamic, where the options want it and the step has it (WantsDynamic): one executable serves all batches,
  // each at its dynamic_shape(). Else its batches are rounded up to a ladder, where the options want one (WantsLadder),
  // until a clear or a new policy. Under kFreeze the first step captures what both modes need of these kinds first,
  // unless CaptureNext has done so before, and freezes the cache.
  // Else shapes are exact. Under kFreeze the step that brings the cache to its freeze point then freezes it at its end,
  // and where misses are padded or rejected evaluation batches come at the plan's rungs from the first one on, unless
  // an executable of their own shape is held. A mode that the limit left nothing of what was planned runs eager once
  // the cache is frozen, whatever a miss means. A step that cannot be captured runs eager, and its mode is not captured
  // again until a clear or a new policy.
  // A replay that IsAuditDue names is audited. Where it differs, the result and the state are the eager step's, and the
  // executable is withdrawn: its steps run eager, at the shape that they had, until a clear.
  // Errors: FailedPrecondition (reason GRAPH_CACHE_MISS, naming the shape) for kReject: the step is not run, and only
  // rejected_inserts rises. FailedPrecondition for what a strict cache does not bear: reason kStrictReason, where the
  // step is not run, and kAuditFailedReason. Else those of the compiler and of the batch.
  absl::StatusOr<StepResult> Run(Mode mode, Batch& batch, int64_t step);

  // The number of executables to be captured before the next step, so that no step waits for a capture: of dynamic and
  // ladder modes, what a cache that freezes or is frozen does not hold, and what a resume took over. 0 and ready:
  // nothing.
  int64_t captures_ahead() const;
  bool ready() const { return ready_; }
  // Captures one of them. After the last the cache is ready, and frozen under kFreeze. Errors: the compiler's.
  absl::Status CaptureNext(int64_t step);

  // Tells the cache that the device has forgotten what it compiled, apart from what executables hold. CaptureNext
  // captures each executable again, with the cause kDeviceEmptied. For exact shapes that are not frozen, the next step
  // that uses one does.
  void OnDeviceEmptied();
  // Frozen, and all that it holds is captured: from here on no planned step compiles anything.
  bool sealed() const;

  // Applies a command at a step boundary. If Check would refuse the command by now, it is logged, and only
  // command_sequence and command_step change. CaptureNext then captures what dynamic and ladder modes need. Errors: the
  // compiler's.
  absl::Status Apply(const Command& command, int64_t step);

  // Takes over the entries of a checkpoint, in their order, with its statistics. For an empty cache. An entry serves
  // the batches that it served before, so that each batch is padded to the shape that the undisturbed run pads it to;
  // its executable is captured by CaptureNext, or of exact shapes when it is first used, in a frozen cache, too. Where
  // that finds a graph break, steps of the entry run eager at its shape, to the same bits.
  void Restore(const Snapshot& snapshot, const std::vector<EntryInfo>& entries);

  // Sequence of the newest command applied; 0: none.
  int64_t last_command() const { return state_.command_sequence; }
  const spec::PolicyOptions& options() const { return state_.options; }
  // The shapes, rising, that batches of the mode are rounded up to; empty: there is no ladder.
  const std::vector<BatchShape>& ladder(Mode mode) const {
    static const std::vector<BatchShape> none;
    return of(mode).rungs > 0 ? PlannedShapes(mode) : none;
  }
  // Counters of the job's steps. The rows of all steps are counted here and nowhere else.
  const ModeStats& of(Mode mode) const { return state_.of(mode); }
  // Entry and byte counts are of this moment.
  Snapshot snapshot() const;
  // The entries, in the order in which they were inserted.
  std::vector<EntryInfo> entries() const;

 private:
  struct Captured {
    std::unique_ptr<Executable> executable;  // nullptr: the step cannot be captured, as `broken` says
    double seconds = 0;
    absl::Status broken;
  };

  // A capture to be made, and why.
  struct CaptureOf {
    Mode mode = Mode::kTrain;
    Cause cause = Cause::kNewShape;
    std::optional<BatchShape> shape;  // nullopt: every one
  };
  struct ReplayedStep {
    Mode mode = Mode::kTrain;
    BatchShape shape;
    int64_t step = 0;
  };
  struct Replayed {
    StepResult result;
    bool audited = false;
    bool differs = false;  // the audit found a difference
  };

  // True if a mode without a dynamic executable has a ladder.
  bool WantsLadder() const { return setup_.pads && spec::WantsLadder(state_.options); }

  // The shape that a batch is padded to.
  struct Padding {
    BatchShape shape;
    bool dynamic = false;  // as a dynamic executable takes it
  };

  ModeStats& stats(Mode mode) { return state_.of(mode); }
  bool& broken(Mode mode) { return stats(mode).broken; }
  // Lets a capture that failed be tried again.
  void RetryBreaks() { broken(Mode::kTrain) = broken(Mode::kEval) = false; }
  // Decides which modes are dynamic, and which have a ladder. Drops what a mode holds of another kind.
  void ChooseKinds();
  // By Mode, as far as something is planned and the limit leaves room. Drops what a mode holds of another form.
  void SetForms(std::array<Form, 2> forms);
  // The present form of each mode, by Mode. Options and counters alone decide it, so that a resumed cache comes to the
  // forms of the undisturbed one.
  std::array<Form, 2> Forms() const;
  void AnnounceCut() const;
  bool IsExact(Mode mode) const { return !of(mode).dynamic && of(mode).rungs == 0; }
  // Returns whether the job's batches can have the shape of an entry that a checkpoint holds: an older version may have
  // rounded them up to other rungs.
  bool IsRung(const EntryInfo& info) const;

  // An executable that is to be captured before a step.
  struct Ahead {
    Mode mode = Mode::kTrain;
    Entry* entry = nullptr;  // to capture again; nullptr: a new one
    BatchShape shape;        // of a new one that is not dynamic
  };
  std::vector<Ahead> AllAhead() const;
  void Seal(int64_t step);

  absl::StatusOr<StepResult> RunStep(Mode mode, Batch& batch, int64_t step);
  // Serves the batch from an executable that was there before.
  absl::StatusOr<StepResult> Serve(Entry& entry, Batch& batch, int64_t step);
  absl::StatusOr<StepResult> Replay(Entry& entry, Batch& batch, int64_t step);
  // The first replay of what the step itself had captured: a miss.
  absl::StatusOr<StepResult> ReplayNew(Entry& entry, Cause cause, Batch& batch, int64_t step);
  // Captures the step at `shape`, replays it, and drops it: a miss.
  absl::StatusOr<StepResult> RunTransient(Mode mode, Cause cause, const BatchShape& shape, Batch& batch, int64_t step);
  absl::StatusOr<StepResult> RunEager(Mode mode, Cause cause, const Padding& padding, Batch& batch, int64_t step);
  // Pads the batch, runs it, and counts its rows.
  absl::StatusOr<StepResult> RunPadded(Mode mode, const Padding& padding, Batch& batch, int64_t step,
                                       const std::function<absl::StatusOr<StepResult>(const StepInputs&)>& run);

  // The shape that a batch is captured at: its own, or the rung that is to serve it.
  BatchShape CaptureShape(Mode mode, const BatchShape& own) const;
  // The shape at which `entry` serves a batch.
  static Padding PaddingFor(const Entry& entry, const Batch& batch) {
    return {.shape = entry.info.dynamic ? batch.dynamic_shape() : entry.info.shape, .dynamic = entry.info.dynamic};
  }
  // As PlannedMode::shapes.
  const std::vector<BatchShape>& PlannedShapes(Mode mode) const { return planned_[static_cast<size_t>(mode)].shapes; }
  absl::StatusOr<Captured> Capture(const CaptureOf& of);
  // nullptr after a graph break.
  absl::StatusOr<Entry*> Insert(Mode mode, Cause cause, const BatchShape& shape, int64_t step);
  // nullptr where the step has no executable for every shape: the mode is dynamic no more. That is told when it is
  // known whether the step can be captured at all.
  absl::StatusOr<Entry*> InsertDynamic(Mode mode, Cause cause, int64_t step);
  // The batches for which the executable of every shape has storage.
  BatchShape DynamicRoom(Mode mode) const;
  void TellResistance(Mode mode);
  // Captures what a restored entry has no executable for yet.
  absl::Status CaptureAgain(Entry& entry);
  Entry& Keep(Captured made, EntryInfo info);
  Entry& Add(Entry entry);
  // Counts the break, and returns its text.
  std::string RecordBreak(Mode mode, const absl::Status& error);
  // From here on the mode's steps run eager. Errors: a graph break is one where the cache is strict.
  absl::Status BreakMode(Mode mode, const absl::Status& error);
  absl::Status StrictBreak(Mode mode, const absl::Status& error) const;
  void Drop(Mode mode);
  void DropAll();
  // findings.cc.
  absl::StatusOr<Replayed> AuditOrReplay(Executable& executable, const ReplayedStep& replayed,
                                         const StepInputs& inputs);
  absl::Status RecordDifference(const ReplayedStep& replayed, const Difference& difference);
  // It serves no more.
  void Withdraw(Entry& entry);

  // findings.cc. `shape`: what a capture of this step would be at.
  Cause WhyMissed(Mode mode, const Batch& batch, const BatchShape& shape, bool dynamic) const;
  void CountCapture(const CaptureOf& of, double seconds);
  void CountMiss(Mode mode, Cause cause);
  void CountEagerMiss(Mode mode, Cause cause, const BatchShape& shape);
  absl::Status StrictError(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const;
  // Ok unless the cache is frozen and strict.
  absl::Status CheckSealed(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const;
  void AnnounceStrict() const;
  // Returns true if the cache holds as many executables as it may.
  bool IsAtLimit() const;
  // Returns the same for a step of this shape, keeping room for what a freeze of exact shapes seals with. {}: for any
  // shape.
  bool IsFull(Mode mode, const BatchShape& shape) const;
  // Logs once as the limit comes near, and once when it is reached.
  void ReportLimit();
  // Logs the same for executables that were captured ahead, unless the limit cut the plan, which was logged then.
  void ReportPlannedLimit();

  // Logs `line` once for each mode.
  void ReportOversize(Mode mode, std::string_view line);

  // Returns whether the limit left a mode nothing of what was planned.
  bool IsCutToNothing(Mode mode) const {
    const PlannedMode& planned = planned_[static_cast<size_t>(mode)];
    return planned.wanted > 0 && planned.most == 0;
  }

  FreezePoint FindPoint() const;
  bool IsFreezeDue() const;
  // For exact shapes captures what PlanExecutables seals with, where it is missing, then seals.
  absl::Status Freeze(int64_t step);
  absl::Status CaptureCeilings(Cause cause, int64_t step);
  absl::Status Execute(const Command& command, int64_t step);
  absl::Status UpdatePolicy(const PolicyUpdate& update, int64_t step);
  int64_t Capacity(Mode mode) const;
  void AnnounceFreezePoint() const;
  void Report(std::string_view line, bool warning) const { setup_.log(line, warning); }
  // The shape as messages name it.
  std::string Text(const BatchShape& shape) const {
    return ToString(shape, setup_.of_seeds ? kCountedSeeds : kCountedGraphs);
  }

  const GraphCacheSetup setup_;  // its options are those of the start; state_ has the present ones
  Compiler& compiler_;
  const std::string no_dynamic_reason_;
  Snapshot state_;
  EntrySet entries_;
  // The shapes that are captured ahead, by Mode.
  PlannedSet planned_;
  // By Mode. Why it has no dynamic executable, until the first static capture.
  std::array<absl::Status, 2> resistance_;
  bool ready_ = false;
  // Since the cache was ready last.
  int64_t captured_ahead_ = 0;
  absl::Duration ahead_elapsed_ = absl::ZeroDuration();
  // By Mode: a batch that has no room in any executable of the frozen cache was reported.
  std::array<bool, 2> reported_oversize_{};
  bool reported_near_limit_ = false, reported_limit_ = false;
  std::array<std::set<BatchShape>, 2> dropped_;  // by Mode: what commands dropped and no step captured again
  std::array<CauseCounts, 2> eager_by_cause_;    // by Mode: of this run, for the log
};

}  // namespace permafrost::graphcache
