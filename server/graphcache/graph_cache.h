// The executables of one job, and what each step does with them.
// Threads: the device thread only.
// Invariant: while frozen, no step adds an entry. Owns every executable; borrows the compiler.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "graphcache/admission.h"
#include "graphcache/command.h"
#include "graphcache/entry_set.h"
#include "graphcache/executable.h"
#include "graphcache/freeze_point.h"
#include "graphcache/shape_plan.h"
#include "graphcache/snapshot.h"

namespace permafrost::graphcache {

struct GraphCacheSetup {
  PolicyOptions options;
  int64_t batch_size = 32;
  GraphSizes sizes;  // for the freeze point, also after a policy command
  ShapePlan plan;
  std::function<absl::Time()> now;  // for show
  // Since any moment, by a clock that nobody sets.
  std::function<absl::Duration()> elapsed;
  // Called once for each thing that a user should know: a freeze point, a freeze, a graph break, a fallback, a resume.
  std::function<void(std::string_view line, bool warning)> log;
};

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
  // and evaluation batches are padded to the plan's rungs from the first one on, unless an executable of their own
  // shape is held. A step that cannot be captured runs eager, and its mode is not captured again until a clear or a new
  // policy.
  // Errors: FailedPrecondition (reason GRAPH_CACHE_MISS, naming the shape) for kReject: the step is not run, and only
  // rejected_inserts rises. Else those of the compiler and of the batch.
  absl::StatusOr<StepResult> Run(Mode mode, Batch& batch, int64_t step);

  // What is to be captured before the next step, so that no step waits for a capture: of dynamic and ladder modes, what
  // a cache that freezes or is frozen does not hold, and what a resume took over. 0 and ready: nothing.
  int64_t captures_ahead() const;
  bool ready() const { return ready_; }
  // Captures one of them. After the last the cache is ready, and frozen under kFreeze. Errors: the compiler's.
  absl::Status CaptureNext(int64_t step);

  // Applies a command at a step boundary. A command that Check refuses by now is logged, and changes command_sequence
  // and command_step alone. What the cache needs of dynamic and ladder modes after it is left to CaptureNext. Errors:
  // the compiler's.
  absl::Status Apply(const Command& command, int64_t step);

  // Takes over the entries of a checkpoint, in their order, with its statistics. For an empty cache. An entry serves
  // the batches that it served before, so that each batch is padded to the shape that the undisturbed run pads it to;
  // its executable is captured by CaptureNext, or of exact shapes when it is first used, in a frozen cache, too. Where
  // that finds a graph break, steps of the entry run eager at its shape, to the same bits.
  void Restore(const Snapshot& snapshot, const std::vector<EntryInfo>& entries);

  // Sequence of the newest command applied; 0: none.
  int64_t last_command() const { return state_.command_sequence; }
  // Counters of the job's steps. The rows of all steps are counted here and nowhere else.
  const ModeStats& of(Mode mode) const { return state_.of(mode); }
  // Entry and byte counts are of this moment.
  Snapshot snapshot() const;
  // In the order in which they were inserted.
  std::vector<EntryInfo> entries() const;

 private:
  struct Captured {
    std::unique_ptr<Executable> executable;  // nullptr: the step cannot be captured, as `broken` says
    double seconds = 0;
    absl::Status broken;
  };

  // What a batch is padded to.
  struct Padding {
    BatchShape shape;
    bool dynamic = false;  // as a dynamic executable takes it
  };

  ModeStats& stats(Mode mode) { return state_.of(mode); }
  bool& broken(Mode mode) { return stats(mode).broken; }
  // What could not be captured may be tried again.
  void RetryBreaks() { broken(Mode::kTrain) = broken(Mode::kEval) = false; }
  // Which modes are dynamic, and which have a ladder. Drops what a mode holds of another kind.
  void ChooseKinds();
  // Of an absent ladder: none, exact shapes.
  void SetKind(Mode mode, bool dynamic, bool ladder);
  bool IsExact(Mode mode) const { return !of(mode).dynamic && of(mode).rungs == 0; }
  // Its shapes; empty: it has none.
  const std::vector<BatchShape>& LadderAt(Mode mode) const { return ladders_[static_cast<size_t>(mode)]; }

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
  absl::StatusOr<StepResult> ReplayNew(Entry& entry, Batch& batch, int64_t step);
  absl::StatusOr<StepResult> RunEager(Mode mode, const Padding& padding, Batch& batch, int64_t step);
  // Pads the batch, runs it, and counts its rows.
  absl::StatusOr<StepResult> RunPadded(Mode mode, const Padding& padding, Batch& batch, int64_t step,
                                       const std::function<absl::StatusOr<StepResult>(const StepInputs&)>& run);

  // The shape that a batch is captured at: its own, or the rung that is to serve it.
  BatchShape CaptureShape(Mode mode, const BatchShape& own) const;
  // What `entry` serves a batch at.
  static Padding PaddingFor(const Entry& entry, const Batch& batch) {
    return {.shape = entry.info.dynamic ? batch.dynamic_shape() : entry.info.shape, .dynamic = entry.info.dynamic};
  }
  // The ladder. Of exact shapes the ceiling of training, then its rungs; the rungs of evaluation.
  std::vector<BatchShape> PlannedShapes(Mode mode) const;
  absl::StatusOr<Captured> Capture(Mode mode, const std::function<absl::StatusOr<std::unique_ptr<Executable>>()>& make);
  absl::StatusOr<Captured> CaptureAt(Mode mode, const BatchShape& shape);
  // nullptr after a graph break.
  absl::StatusOr<Entry*> Insert(Mode mode, const BatchShape& shape, int64_t step);
  // nullptr where the step has no executable for every shape: the mode is dynamic no more. That is told when it is
  // known whether the step can be captured at all.
  absl::StatusOr<Entry*> InsertDynamic(Mode mode, int64_t step);
  void TellResistance(Mode mode);
  // Captures what a restored entry has no executable for yet.
  absl::Status CaptureAgain(Entry& entry);
  Entry& Keep(Captured made, EntryInfo info);
  Entry& Add(Entry entry);
  // Counts the break, and returns its text.
  std::string RecordBreak(Mode mode, const absl::Status& error);
  // From here on the mode's steps run eager.
  void BreakMode(Mode mode, const absl::Status& error);
  void Drop(Mode mode);
  void DropAll();
  // Once a mode.
  void ReportOversize(Mode mode, std::string_view line);

  FreezePoint FindPoint() const;
  bool IsFreezeDue() const;
  // Of exact shapes captures the training ceiling and all planned rungs (where they are missing), then seals.
  absl::Status Freeze(int64_t step);
  absl::Status CaptureCeilings(int64_t step);
  absl::Status Execute(const Command& command, int64_t step);
  absl::Status UpdatePolicy(const PolicyUpdate& update, int64_t step);
  int64_t Capacity(Mode mode) const;
  void AnnounceFreezePoint() const;
  void Report(std::string_view line, bool warning) const { setup_.log(line, warning); }

  const GraphCacheSetup setup_;  // its options are those of the start; state_ has the present ones
  Compiler& compiler_;
  const std::string no_dynamic_reason_;
  Snapshot state_;
  EntrySet entries_;
  // By Mode. The rungs of its ladder, rising.
  std::array<std::vector<BatchShape>, 2> ladders_;
  // By Mode. Why it has no dynamic executable, until the first static capture.
  std::array<absl::Status, 2> resistance_;
  bool ready_ = false;
  // Since the cache was ready last.
  int64_t captured_ahead_ = 0;
  absl::Duration ahead_elapsed_ = absl::ZeroDuration();
  // By Mode: a batch that has no room in any executable of the frozen cache was reported.
  std::array<bool, 2> reported_oversize_{};
};

}  // namespace permafrost::graphcache
