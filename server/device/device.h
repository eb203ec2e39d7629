// The accelerator that the daemon owns.
// Threads: OpenDevice once, on any thread; Synchronize and UseThreads on the device's one thread.
#pragma once

#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "base/device_kind.h"

namespace permafrost::device {

// kAuto: MPS, else CUDA, else CPU, whichever libtorch finds here. Errors: FailedPrecondition for a device that is
// absent.
absl::StatusOr<c10::Device> OpenDevice(DeviceKind kind);
DeviceKind KindOf(c10::Device device);
// Threads of the math library on the calling thread. 0: AvailableCores().
int UseThreads(int threads);
// Waits for the device's queued work, so that a clock read afterwards tells the truth. Nothing on CPU.
void Synchronize(c10::Device device);

}  // namespace permafrost::device
