// Faults that leave the accelerator unusable until the process ends, such as an illegal memory access on CUDA: each
// later call of the device fails with the same error. Threads: everything here is pure.
#pragma once

#include "absl/status/status.h"

namespace permafrost {

// `status` marked as such a fault. It is transient too (base/status.h): the work is not to blame before it has been
// tried again in another process.
absl::Status AsDeviceFault(absl::Status status);
bool IsDeviceFault(const absl::Status& status);

}  // namespace permafrost
