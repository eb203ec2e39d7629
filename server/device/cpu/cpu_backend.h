// The CPU as a device. A step is recorded, compared with a second run of it, and proven by replay before the
// recording is used. Replays take their storage from a plan (storage.h).
// Threads: the device thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "device/cpu/tape.h"
#include "device/cpu/tape_compare.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

// Makes the CPU's backend and installs the counting allocator (storage.h). The CPU is present on every machine.
std::unique_ptr<Backend> MakeCpuBackend();

// Captures `program` for the shape of `first` and `second`, which are different batches of equal shapes. Starting
// from the present state, the program runs on `first` and then on `second`. The first run is recorded, and the second
// is compared with the recording. The two runs may differ only in their inputs, and a replay on each batch must leave
// the same bits in state and outputs as the run. Otherwise the step cannot be captured. When this returns, the state
// and libtorch's default generator are as before, also after an error or an exception. Exceptions of the program pass
// through. The executable borrows program and arena.
// Memory: CapturePeakBytes (device/backend.h). The call frees the arena's memory, so outputs that executables of
// `arena` returned before are no longer valid.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena);

// Captures `program` once for every shape. The probes are batches of different content, with no size below 2. Every
// size that may differ between batches differs between the probes, and no two sizes change by the same amounts from
// probe to probe. Probe 0 has the largest shape to be served without the heap. The program runs on each probe in
// turn, and each run is recorded. The runs may differ only in their inputs and in integers that follow from the
// inputs' sizes (tape_compare.h). A replay on each probe must leave the same bits in state and outputs as the run.
// Otherwise the step cannot be captured for every shape. The last probe is a test: nothing is learned from its shape.
// Everything else is as for CaptureOnCpu. Errors of `probes` pass through.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamicOnCpu(const StepProgram& program,
                                                                            const ProbeInputs& probes, Arena& arena);

// The number of probes on which a ladder's step is recorded. A ladder is a set of executables, each for one shape.
// Each executable then tests what was learned from these probes, as the last probe does in a dynamic capture.
inline constexpr size_t kLadderProbes = kDynamicProbes - 1;

// A step that was recorded once. Executables of single shapes are made from it. Borrows the program.
struct RecordedStep {
  std::unique_ptr<Tape> tape;  // recorded at the first probe
  StepSizes sizes;
  // The storage plan of the largest executable so far. The plan serves smaller shapes too.
  StoragePlan plan;
  // The sizes of that executable's inputs.
  std::vector<int64_t> planned;
};

// Records `program` on the first kLadderProbes probes. The probes are as for CaptureDynamicOnCpu, but may be small,
// since no storage is planned for them. When this returns, state and generator are as before. Errors:
// FailedPrecondition with graphcache::kGraphBreakReason. Errors of `probes` and exceptions of the program pass
// through.
absl::StatusOr<RecordedStep> RecordOnCpu(const StepProgram& program, const ProbeInputs& probes);

// Makes an executable of a recorded step for the shape of `inputs`, in which every size is at least 2. The step runs
// once and is compared with the recording, operator by operator, including every integer that follows from the sizes.
// A replay in the arena must then leave the same bits in state and outputs. Make the largest shape first, since each
// shape larger than all before it costs one more replay, to learn its storage plan. For a smaller shape the arena is
// not freed, and the run of the step also allocates there as far as there is room. Everything else is as for
// CaptureOnCpu.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRungOnCpu(const StepProgram& program,
                                                                         const graphcache::StepInputs& inputs,
                                                                         RecordedStep& recorded, Arena& arena);

}  // namespace permafrost::device
