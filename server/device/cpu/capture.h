// Capture of a step: recorded, checked, and proven by replay before anyone relies on it.
// Threads: the device thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "device/cpu/storage.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

// Whether steps can be captured on `device` with this libtorch; asked once, at start. Errors: see CheckRecording.
absl::Status CheckCapture(c10::Device device);

// Captures `program` for the shapes of `first` and `second`, which are different batches of equal shapes.
// On the CPU both steps are run and recorded from the present state, one after the other. Where the recordings differ
// in anything but their inputs, or a replay of both does not leave bit-equal state and outputs, the step cannot be
// captured. The state, and libtorch's default generator, are as before when this returns, also after an error. On other
// devices nothing is recorded: the executable runs the program at its one shape, which bounds what a backend that
// compiles by shape keeps.
// The executable borrows program and arena. What an executable of `arena` returned before is not valid any more.
// Errors: FailedPrecondition with graphcache::kGraphBreakReason.
// Exceptions of the program pass through.
absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program, c10::Device device,
                                                                const graphcache::StepInputs& first,
                                                                const graphcache::StepInputs& second, Arena& arena);

}  // namespace permafrost::device
