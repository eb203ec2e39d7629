// The graph cache of one job. It keeps the job's executables, and decides for each step whether to replay one, to
// capture one, or to run eager.
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

// The ways of running a step. Admit chooses one, depending on the policy, the cache's content and the batch's shape.
// Threads: values and a pure function.
enum class Action {
  kReplay,        // replay the executable of the batch's own shape
  kReplayPadded,  // pad the batch and replay the larger executable with the fewest rows
  kCaptureKeep,   // capture this shape, keep the executable, replay it
  kCaptureDrop,   // capture this shape, replay the executable, drop it
  kRunEager,      // run the step uncaptured
  kReject,        // fail the job without running the step
};

// The cache's state with regard to the shape of one batch.
struct Lookup {
  bool exact = false;   // an executable of exactly this shape is held
  bool larger = false;  // a larger executable is held, to which the batch can be padded
  bool broken = false;  // a graph break was found: the step cannot be captured
  bool full = false;    // the cache is at its limit
};

// Chooses how a step runs.
// kNever and kClearPerStep never replay a held executable, and never freeze. kAlways and kFreeze replay an executable
// of the exact shape. They capture and keep a new shape until the cache is `frozen`. In a frozen cache, on_miss
// decides about a new shape.
// If the cache is full but not frozen, a batch of a new shape is padded into a larger executable, or runs eager if
// none is held. If the step cannot be captured, kRunEager replaces the capture actions, but not kReject.
Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup);

// An executable that a graph cache holds, with its statistics.
// Threads: the device thread only.
struct Entry {
  EntryInfo info;
  // Null if the entry awaits its recapture, if its recapture failed, or if an audit withdrew it.
  std::unique_ptr<Executable> executable;
  bool awaits_recapture = false;
  Cause recapture_cause = Cause::kResume;
};

// Holds the entries of a graph cache, and finds the entry that serves a shape. Owns every executable.
// Threads: the device thread only.
class EntrySet {
 public:
  Entry& Add(std::unique_ptr<Entry> entry);
  // Returns the entry of exactly this shape, or nullptr if there is none.
  Entry* Find(Mode mode, const BatchShape& shape) const;
  // Returns the entry with the fewest rows that holds `shape`, or nullptr if there is none.
  Entry* FindCheapest(Mode mode, const BatchShape& shape) const;
  // Returns the dynamic entry of the mode, or nullptr. Find and FindCheapest never return it.
  Entry* FindDynamic(Mode mode) const { return dynamic_[static_cast<size_t>(mode)]; }
  void Drop(Mode mode);
  // Returns all entries, in the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& all() const { return entries_; }

 private:
  using Key = std::pair<Mode, BatchShape>;

  std::vector<std::unique_ptr<Entry>> entries_;
  std::map<Key, Entry*> by_key_;
  // Indexed by Mode. The entries are ordered by the rows of their shapes, and entries with equal rows by the order of
  // their addition.
  std::array<std::vector<Entry*>, 2> by_rows_;
  std::array<Entry*, 2> dynamic_{};  // by Mode
};

struct GraphCacheSetup {
  spec::PolicyOptions options;
  int64_t batch_size = 32;  // graphs of a full training batch
  // Indexed by Mode: true if only the last batch of an epoch can have fewer than batch_size graphs. False if batches
  // are composed by size, because then any batch can.
  std::array<bool, 2> has_partial = {true, true};
  GraphSizes sizes;  // the freeze point is computed from them, also after a policy command
  ShapeSchedule plan;
  bool of_seeds = false;  // true if BatchShape::graphs counts a batch's seed nodes, not graphs
  // False if a step takes the real sizes of its batch from the shapes of tensors. More padding would then change the
  // result, so each batch runs at its least_padded() shape: there is no ladder, and no miss is padded. If a dynamic
  // executable could run a batch only with more padding, the batch runs eagerly.
  bool pads = true;
  std::function<absl::Time()> now;  // wall clock, only for display
  // Returns the time since an arbitrary moment, by a monotonic clock.
  std::function<absl::Duration()> elapsed;
  // Called once for each event that may interest a user: a freeze point, a freeze, a graph break, a fallback, a
  // resume.
  std::function<void(std::string_view line, bool warning)> log;
  // Called for each failed audit.
  std::function<void(std::string_view line)> log_error;
};

// The error reason with which a strict job fails. Its metadata are "cause", "mode" and "shape" or, for a graph break,
// "cause", "mode" and "op".
inline constexpr char kStrictReason[] = "GRAPH_CACHE_STRICT";

// Returns the mode's name in messages, for example "training".
inline std::string_view StepName(Mode mode) { return mode == Mode::kTrain ? "training" : "evaluation"; }

// Holds the executables of one job, and decides how each step runs. Owns every executable; borrows the compiler.
// Threads: the device thread only.
// Invariant: while the cache is frozen, no step adds an entry.
class GraphCache {
 public:
  GraphCache(GraphCacheSetup setup, Compiler& compiler);

  // Runs one step of `mode`; `step` is the number of optimizer steps done before it. Returns the step's result. If
  // the step froze the cache, returns null, because the captures of the freeze have reused the result's memory.
  // Dynamic modes: a mode is dynamic if the options want it (WantsDynamic) and the step allows it. One executable
  // then serves all batches of the mode, each at its dynamic_shape().
  // Ladders: if a mode is not dynamic and the options want a ladder (WantsLadder), the mode's batches are rounded up
  // to the ladder's rungs. This holds until a clear or a new policy. Under kFreeze, CaptureNext makes the captures of
  // dynamic and ladder modes, and the last call freezes the cache. If captures are missing when a step begins, Run
  // calls CaptureNext itself.
  // Exact shapes: any other mode replays executables of its batches' exact shapes. Under kFreeze, the cache freezes
  // at the end of the step that brings it to its freeze point. If misses are also padded or rejected, every
  // evaluation batch, from the first one on, is padded to the plan's rungs. An executable of the batch's own shape,
  // if held, comes first.
  // Eager steps: a step that cannot be captured runs eager, and its mode is not captured again until a clear or a new
  // policy. If max_executables left none of a mode's planned executables, the mode runs eager in a frozen cache,
  // whatever on_miss says.
  // Audits: a replay is audited if IsAuditDue returns true. If the audit finds a difference, the result and the state
  // of the eager step are kept, and the executable is withdrawn. Until a clear, the steps that this executable would
  // have served run eager at its shape.
  // Errors: for kReject, FailedPrecondition with reason GRAPH_CACHE_MISS, which names the shape; the step does not
  // run, and no counter but rejected_inserts rises. For a strict cache, FailedPrecondition with kStrictReason before
  // the step runs, or with kAuditFailedReason. Any other error comes from the compiler or the batch.
  absl::StatusOr<StepResult> Run(Mode mode, Batch& batch, int64_t step);

  // Returns the number of captures to make before the next step, so that no step waits for one; 0 if the cache is
  // ready. If the cache freezes or is frozen, this counts the missing executables of dynamic and ladder modes. It
  // also counts the entries to recapture after a resume, or after the device forgot them.
  int64_t captures_ahead() const;
  bool ready() const { return ready_; }
  // Makes one of the captures that captures_ahead() counts. After the last one, the cache is ready, and under kFreeze
  // it is frozen.
  // Errors: those of the compiler.
  absl::Status CaptureNext(int64_t step);

  // Tells the cache that the device has forgotten what it compiled, except for what executables hold. CaptureNext
  // captures each executable again, with the cause kDeviceEmptied. An exception is an exact shape in a cache that is
  // not frozen: the next step that uses it captures it again.
  void OnDeviceEmptied();
  // Returns true if the cache is frozen and all its entries are captured. From then on, no planned step compiles
  // anything.
  bool sealed() const;

  // Applies a command at a step boundary. If Check now refuses the command, logs the refusal, and changes only
  // command_sequence and command_step. After Apply, CaptureNext makes the captures that dynamic and ladder modes
  // need.
  // Errors: those of the compiler.
  absl::Status Apply(const Command& command, int64_t step);

  // Takes over the entries of a checkpoint, in their order, and its statistics. The cache must be empty. An entry
  // serves the same batches as before, so each batch is padded to the same shape as in an undisturbed run.
  // CaptureNext captures dynamic entries and rungs again. An entry of an exact shape is captured again when it is
  // first used, even in a frozen cache. If a recapture finds a graph break, the steps of the entry run eager at its
  // shape, with the same bits.
  void Restore(const Snapshot& snapshot, const std::vector<EntryInfo>& entries);

  // Returns the sequence number of the newest applied command, or 0.
  int64_t last_command() const { return state_.command_sequence; }
  const spec::PolicyOptions& options() const { return state_.options; }
  // Returns the shapes, in rising order, to which batches of the mode are rounded up; empty if there is no ladder.
  const std::vector<BatchShape>& ladder(Mode mode) const {
    static const std::vector<BatchShape> none;
    return of(mode).rungs > 0 ? PlannedShapes(mode) : none;
  }
  // Returns the counters of the job's steps of this mode. The rows of all steps are counted here and nowhere else.
  const ModeStats& of(Mode mode) const { return state_.of(mode); }
  // Returns the present state of the cache, including counts of entries and bytes.
  Snapshot snapshot() const;
  // Returns the entries, in the order in which they were inserted.
  std::vector<EntryInfo> entries() const;

 private:
  struct Captured {
    std::unique_ptr<Executable> executable;  // nullptr if the step cannot be captured; `broken` then says why
    double seconds = 0;
    absl::Status broken;
  };

  // A capture to make, and its cause.
  struct CaptureOf {
    Mode mode = Mode::kTrain;
    Cause cause = Cause::kNewShape;
    std::optional<BatchShape> shape;  // nullopt for an executable of every shape
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

  // Returns true if a mode without a dynamic executable uses a ladder.
  bool WantsLadder() const { return setup_.pads && spec::WantsLadder(state_.options); }

  // The shape to which a batch is padded.
  struct Padding {
    BatchShape shape;
    bool dynamic = false;  // true if the batch is padded for a dynamic executable
  };

  ModeStats& stats(Mode mode) { return state_.of(mode); }
  bool& broken(Mode mode) { return stats(mode).broken; }
  // Allows captures again after graph breaks.
  void RetryBreaks() { broken(Mode::kTrain) = broken(Mode::kEval) = false; }
  // Chooses the form of each mode from the options. If a mode's form changes, drops the entries of its old form.
  void ChooseKinds();
  // Sets the form of each mode, indexed by Mode. A ladder becomes exact shapes if nothing is planned for it or the
  // limit leaves room for none of its rungs. If a mode's form changes, drops the entries of its old form.
  void SetForms(std::array<Form, 2> forms);
  // Returns the present form of each mode, indexed by Mode. The forms depend only on options and counters, so a
  // resumed cache has the same forms as an uninterrupted one.
  std::array<Form, 2> Forms() const;
  void AnnounceCut() const;
  bool IsExact(Mode mode) const { return !of(mode).dynamic && of(mode).rungs == 0; }
  // Returns whether the job's batches can be padded to the shape of this entry of a checkpoint. If an older version
  // wrote the checkpoint, it may have used other rungs.
  bool IsRung(const EntryInfo& info) const;

  // A capture to make before a step.
  struct Ahead {
    Mode mode = Mode::kTrain;
    Entry* entry = nullptr;  // the entry to capture again; nullptr for a new one
    BatchShape shape;        // shape of a new entry that is not dynamic
  };
  std::vector<Ahead> AllAhead() const;
  void Seal(int64_t step);

  absl::StatusOr<StepResult> RunStep(Mode mode, Batch& batch, int64_t step);
  // Runs the batch with an entry that existed before this step.
  absl::StatusOr<StepResult> Serve(Entry& entry, Batch& batch, int64_t step);
  absl::StatusOr<StepResult> Replay(Entry& entry, Batch& batch, int64_t step);
  // Replays an entry for the first time, during the step that captured it. Counts a miss.
  absl::StatusOr<StepResult> ReplayNew(Entry& entry, Cause cause, Batch& batch, int64_t step);
  // Captures the step at `shape`, replays it, and drops it. Counts a miss.
  absl::StatusOr<StepResult> RunTransient(Mode mode, Cause cause, const BatchShape& shape, Batch& batch, int64_t step);
  absl::StatusOr<StepResult> RunEager(Mode mode, Cause cause, const Padding& padding, Batch& batch, int64_t step);
  // Pads the batch, passes its inputs to `run`, and counts the batch's rows.
  absl::StatusOr<StepResult> RunPadded(Mode mode, const Padding& padding, Batch& batch, int64_t step,
                                       const std::function<absl::StatusOr<StepResult>(const StepInputs&)>& run);

  // Returns the shape at which a batch of shape `own` is captured: its own shape, or the rung that serves it.
  BatchShape CaptureShape(Mode mode, const BatchShape& own) const;
  // Returns the shape to which a batch is padded for `entry`.
  static Padding PaddingFor(const Entry& entry, const Batch& batch) {
    return {.shape = entry.info.dynamic ? batch.dynamic_shape() : entry.info.shape, .dynamic = entry.info.dynamic};
  }
  // Returns PlannedMode::shapes of the mode.
  const std::vector<BatchShape>& PlannedShapes(Mode mode) const { return planned_[static_cast<size_t>(mode)].shapes; }
  absl::StatusOr<Captured> Capture(const CaptureOf& of);
  // Captures the step at `shape` and adds its entry. Returns nullptr after a graph break.
  absl::StatusOr<Entry*> Insert(Mode mode, Cause cause, const BatchShape& shape, int64_t step);
  // Captures the step for every shape and adds its entry. If the step cannot be captured for every shape, returns
  // nullptr, and the mode is no longer dynamic. TellResistance logs the reason later, once it is known whether the
  // step can be captured at a single shape.
  absl::StatusOr<Entry*> InsertDynamic(Mode mode, Cause cause, int64_t step);
  // Returns the shape of the largest batch for which the dynamic executable has storage.
  BatchShape DynamicRoom(Mode mode) const;
  // Logs the reason why the mode has no dynamic executable, unless it was logged before.
  void TellResistance(Mode mode);
  // Captures the executable of an entry that awaits its recapture.
  absl::Status CaptureAgain(Entry& entry);
  Entry& Keep(Captured made, EntryInfo info);
  Entry& Add(Entry entry);
  // Counts the graph break and returns its description.
  std::string RecordBreak(Mode mode, const absl::Status& error);
  // Makes the mode's steps run eager from now on.
  // Errors: FailedPrecondition with kStrictReason if the cache is strict.
  absl::Status BreakMode(Mode mode, const absl::Status& error);
  absl::Status StrictBreak(Mode mode, const absl::Status& error) const;
  void Drop(Mode mode);
  void DropAll();
  // The next methods, up to ReportPlannedLimit, are defined in findings.cc.
  absl::StatusOr<Replayed> AuditOrReplay(Executable& executable, const ReplayedStep& replayed,
                                         const StepInputs& inputs);
  absl::Status RecordDifference(const ReplayedStep& replayed, const Difference& difference);
  // Frees the executable of the entry, so that it serves no further steps.
  void Withdraw(Entry& entry);

  // Returns the cause of a miss. `shape` is the shape at which the step would be captured.
  Cause WhyMissed(Mode mode, const Batch& batch, const BatchShape& shape, bool dynamic) const;
  void CountCapture(const CaptureOf& of, double seconds);
  void CountMiss(Mode mode, Cause cause);
  void CountEagerMiss(Mode mode, Cause cause, const BatchShape& shape);
  absl::Status StrictError(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const;
  // Returns StrictError if the cache is frozen and strict, and OK otherwise.
  absl::Status CheckSealed(Mode mode, Cause cause, const BatchShape& shape, std::string_view what) const;
  void AnnounceStrict() const;
  // Returns true if the cache holds as many executables as the limit allows.
  bool IsAtLimit() const;
  // Returns true if the limit leaves no room for an executable of `shape`; {} stands for any shape that is not
  // planned. Room is reserved for the shapes that a freeze is to capture.
  bool IsFull(Mode mode, const BatchShape& shape) const;
  // Logs a line when the cache first comes near its limit, and another when it first reaches the limit.
  void ReportLimit();
  // Calls ReportLimit for executables that were captured ahead. Does nothing if the limit cut the plan, because that
  // was logged already.
  void ReportPlannedLimit();

  // Logs `line`, but only once for each mode.
  void ReportOversize(Mode mode, std::string_view line);

  // Returns true if the limit left none of the mode's planned executables.
  bool IsCutToNothing(Mode mode) const {
    const PlannedMode& planned = planned_[static_cast<size_t>(mode)];
    return planned.wanted > 0 && planned.most == 0;
  }

  FreezePoint FindPoint() const;
  bool IsFreezeDue() const;
  // Captures the planned exact shapes (PlanExecutables) that are missing, and then freezes the cache.
  absl::Status Freeze(int64_t step);
  absl::Status CaptureCeilings(Cause cause, int64_t step);
  absl::Status Execute(const Command& command, int64_t step);
  absl::Status UpdatePolicy(const PolicyUpdate& update, int64_t step);
  int64_t Capacity(Mode mode) const;
  void AnnounceFreezePoint() const;
  void Report(std::string_view line, bool warning) const { setup_.log(line, warning); }
  // Returns the shape's text in messages.
  std::string Text(const BatchShape& shape) const {
    return ToString(shape, setup_.of_seeds ? kCountedSeeds : kCountedGraphs);
  }

  const GraphCacheSetup setup_;  // its options are those at the job's start; state_ has the present options
  Compiler& compiler_;
  const std::string no_dynamic_reason_;
  Snapshot state_;
  EntrySet entries_;
  // The planned executables, indexed by Mode.
  PlannedSet planned_;
  // Indexed by Mode: the reason why the mode has no dynamic executable, until the mode's first capture at one shape
  // logs it.
  std::array<absl::Status, 2> resistance_;
  bool ready_ = false;
  // Captures made ahead since the cache was last ready: their number, and the time that they took.
  int64_t captured_ahead_ = 0;
  absl::Duration ahead_elapsed_ = absl::ZeroDuration();
  // Indexed by Mode: true if ReportOversize has logged a line.
  std::array<bool, 2> reported_oversize_{};
  bool reported_near_limit_ = false, reported_limit_ = false;
  // By Mode: shapes that commands dropped, until a step captures them again.
  std::array<std::set<BatchShape>, 2> dropped_;
  std::array<CauseCounts, 2> eager_by_cause_;  // by Mode: eager steps of this run, for the log
};

}  // namespace permafrost::graphcache
