// The kernels that steps on a GPU use (nn/gpu), compiled for it.
#pragma once

#include "absl/status/status.h"
#include "device/backend.h"

namespace permafrost::train {

// Compiles them for the backend's device; a device that compiles none gets none. It is called before the first step on
// the device. Errors: FailedPrecondition in one line; steps then run by PyTorch's operators.
absl::Status UseKernelsOf(const device::Backend& backend);

}  // namespace permafrost::train
