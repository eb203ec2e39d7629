// The CPU: a step is recorded, compared with a second one, and proven by replay before anyone relies on it; replays are
// served from a plan of its storage.
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

// Puts the counting allocator in place (storage.h). Always there.
std::unique_ptr<Backend> MakeCpuBackend();

// Captures `program` for the shapes of `first` and `second`, which are different batches of equal shapes.
// Both steps are run from the present state, one after the other: the first is recorded, the second compared with it.
// Where they differ in anything but their inputs, or a replay of both does not leave bit-equal state and outputs, the
// step cannot be captured. The state, and libtorch's default generator, are as before when this returns, also after an
// error or an exception of the program, which passes through.
// Memory: CapturePeakBytes (device/backend.h); the arena's is given back meanwhile, so that what an executable
// of `arena` returned before is not valid any more. The executable borrows program and arena.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena);

// Captures `program` once for every shape. The probes are batches of different content whose shapes differ in every
// size that any two batches may differ in, each size in its own way and none below 2; the first is the largest that is
// to be served without the heap. The steps are run and recorded one after the other. Where they differ in anything but
// their inputs and integers that follow from the sizes of these (tape_compare.h), or replays of all, of which the last
// is of a shape that nothing was learned from, do not leave bit-equal state and outputs, the step cannot be captured
// so. All else as CaptureOnCpu says; errors of `probes` pass through.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamicOnCpu(const StepProgram& program,
                                                                            const ProbeInputs& probes, Arena& arena);

// Probes that a ladder's step is recorded on: each rung checks what they say, as the last one does of a dynamic
// capture.
inline constexpr size_t kLadderProbes = kDynamicProbes - 1;

// A step that is recorded once, to make executables of single shapes from it. Borrows the program.
struct RecordedStep {
  std::unique_ptr<Tape> tape;  // at the first probe
  StepSizes sizes;
  // The plan of the largest executable so far, and the sizes of its inputs: it serves those of smaller shapes too.
  StoragePlan plan;
  std::vector<int64_t> planned;
};

// Records `program` on the first kLadderProbes probes, which are those of CaptureDynamicOnCpu but for their size: small
// ones will do, since nothing is laid out. State and generator are as before when this returns. Errors:
// FailedPrecondition with graphcache::kGraphBreakReason; those of `probes` pass through, and exceptions of the program.
absl::StatusOr<RecordedStep> RecordOnCpu(const StepProgram& program, const ProbeInputs& probes);

// An executable for the shape of `inputs`, in which no size is below 2, of a step that is recorded already. The step is
// run once and compared with the recording, operator by operator, down to every integer that follows from the sizes;
// then it is replayed from the arena, and must leave bit-equal state and outputs. Ask for the largest shape first: each
// shape larger than all before it costs one more replay, to be laid out. For a smaller shape the arena is kept, since
// the executable needs it; what the step allocates goes there too, as far as it fits. All else as CaptureOnCpu says.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRungOnCpu(const StepProgram& program,
                                                                         const graphcache::StepInputs& inputs,
                                                                         RecordedStep& recorded, Arena& arena);

}  // namespace permafrost::device
