// The kernels that steps on a GPU use (nn/gpu), compiled for it.
#pragma once

#include "absl/status/status.h"
#include "device/backend.h"

namespace permafrost::train {

// Compiles them for the backend's device; a device that compiles none gets none. Before the first step on it. Errors:
// FailedPrecondition in one line; steps then run by PyTorch's operators.
absl::Status UseKernelsOf(const device::Backend& backend);

}  // namespace permafrost::train
