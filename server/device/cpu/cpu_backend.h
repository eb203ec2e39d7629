// The CPU as a device. A step is recorded, compared with a second step, and proven by replay before it is used.
// Replays are served from a plan of their storage.
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

// Makes the CPU's backend and installs the counting allocator (storage.h). Never fails.
std::unique_ptr<Backend> MakeCpuBackend();

// Captures `program` for the shape of `first` and `second`, which are different batches of equal shapes. Both steps
// run from the present state: the first is recorded, and the second compared with it. The two runs may differ only in
// their inputs, and a replay of each must leave bit-equal state and outputs. Otherwise the step cannot be captured.
// The state and libtorch's default generator are as before when this returns, also after an error or an exception.
// Exceptions of the program pass through. The executable borrows program and arena.
// Memory: CapturePeakBytes (device/backend.h). The arena's memory is given back meanwhile, so outputs that executables
// of `arena` returned before are no longer valid.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena);

// Captures `program` once for every shape. The probes are batches of different content. Their shapes differ in every
// size in which two batches may differ, each size in its own way, and no size is below 2. Probe 0 is the largest
// shape that is to be served without the heap. The steps run and are recorded one after the other. The steps may
// differ only in their inputs and in integers that follow from the inputs' sizes (tape_compare.h). The replay of each
// probe must leave bit-equal state and outputs. Otherwise the step cannot be captured for every shape. The last probe
// is a test: nothing is learned from its shape. Everything else is as for CaptureOnCpu. Errors of `probes` pass
// through.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamicOnCpu(const StepProgram& program,
                                                                            const ProbeInputs& probes, Arena& arena);

// The number of probes on which a ladder's step is recorded. Each rung then tests what was learned from these probes,
// as the last probe does in a dynamic capture.
inline constexpr size_t kLadderProbes = kDynamicProbes - 1;

// A step that is recorded once, so that executables of single shapes can be made from it. Borrows the program.
struct RecordedStep {
  std::unique_ptr<Tape> tape;  // recorded at the first probe
  StepSizes sizes;
  // The storage plan of the largest executable so far, which serves smaller shapes too, and the sizes of that
  // executable's inputs.
  StoragePlan plan;
  std::vector<int64_t> planned;
};

// Records `program` on the first kLadderProbes probes. The probes are those of CaptureDynamicOnCpu. Unlike there,
// they may be small, since no storage is laid out for them. State and generator are as before when this returns.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason. Errors of `probes` and exceptions of the program
// pass through.
absl::StatusOr<RecordedStep> RecordOnCpu(const StepProgram& program, const ProbeInputs& probes);

// Makes an executable of a recorded step for the shape of `inputs`, in which every size is at least 2. The step runs
// once and is compared with the recording, operator by operator, including every integer that follows from the sizes.
// Then it is replayed from the arena, and must leave bit-equal state and outputs. Ask for the largest shape first:
// each shape that is larger than all before it costs one more replay, to learn its storage plan. For a smaller shape
// the arena is kept, since the executable needs it, and the step allocates there as far as it fits. Everything else is
// as for CaptureOnCpu.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRungOnCpu(const StepProgram& program,
                                                                         const graphcache::StepInputs& inputs,
                                                                         RecordedStep& recorded, Arena& arena);

}  // namespace permafrost::device
