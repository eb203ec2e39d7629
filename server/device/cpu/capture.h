// Capture of a step on the CPU: recorded, compared with a second one, and proven by replay before anyone relies on it.
// Threads: the device thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/cpu/storage.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

// Captures `program` for the shapes of `first` and `second`, which are different batches of equal shapes.
// Both steps are run from the present state, one after the other: the first is recorded, the second compared with it.
// Where they differ in anything but their inputs, or a replay of both does not leave bit-equal state and outputs, the
// step cannot be captured. The state, and libtorch's default generator, are as before when this returns, also after an
// error or an exception of the program, which passes through.
// Memory: CapturePeakBytes (device/capture_memory.h); the arena's is given back meanwhile, so that what an executable
// of `arena` returned before is not valid any more. The executable borrows program and arena.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena);

// Captures `program` once for every shape. The probes are batches of different content whose shapes differ in every
// size that any two batches may differ in, each size in its own way and none below 2; the first is the largest that is
// to be served without the heap. The steps are run and recorded one after the other. Where they differ in anything but
// their inputs and integers that follow from the sizes of these (step_sizes.h), or replays of all, of which the last is
// of a shape that nothing was learned from, do not leave bit-equal state and outputs, the step cannot be captured so.
// All else as CaptureOnCpu says; errors of `probes` pass through.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamicOnCpu(const StepProgram& program,
                                                                            const ProbeInputs& probes, Arena& arena);

}  // namespace permafrost::device
