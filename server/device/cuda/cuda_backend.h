// An NVIDIA GPU. Executables are CUDA graphs, one for each shape (graph_capturer.h).
// Threads: same as Backend. Only the device's thread calls the device. It publishes the device's state at most every
// 200 ms, and at a job's end. Other threads see the state last published.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "device/backend.h"

namespace permafrost::device {

// Checks that card `index` can be used. Errors: FailedPrecondition if something is missing, naming the first such
// thing. It may be the driver, the card, the module, a library of the module, or a driver that is new enough.
absl::Status FindCuda(int index);
// Call it only if FindCuda(index) is Ok.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace permafrost::device
