// An NVIDIA GPU. Executables are CUDA graphs, one for each shape (graph_capturer.h).
// Threads: same as Backend. Only the device's thread calls the device. Other threads see the state that the device's
// thread last published. It publishes at most every 200 ms, and at a job's end.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "device/backend.h"

namespace permafrost::device {

// Checks that card `index` can be used. Errors: FailedPrecondition that names the first thing that is missing. It may
// be the driver, the card, the module, a library of the module, or a driver that is new enough.
absl::Status FindCuda(int index);
// Call it only if FindCuda(index) is Ok.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace permafrost::device
