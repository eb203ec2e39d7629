// An NVIDIA GPU. Executables are CUDA graphs, one for each shape (graph_capturer.h).
// Threads: same as Backend. Only the device's thread calls the device. It publishes the device's state at most every
// 200 ms, and at a job's end. Other threads see the state that was published last.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "device/backend.h"

namespace permafrost::device {

// Checks that card `index` can be used. Errors: FailedPrecondition, naming the first fault: the driver, the card, the
// module or a library of the module is missing, or the driver is too old.
absl::Status FindCuda(int index);
// Call it only if FindCuda(index) is Ok.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace permafrost::device
