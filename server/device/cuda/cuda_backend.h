// An NVIDIA GPU, the first one. Executables are CUDA graphs, one a shape (graph_capturer.h).
#pragma once

#include <memory>

#include "device/backend.h"

namespace permafrost::device {

// Whether this machine has one and this libtorch was built for it.
bool HasCuda();
// Only where HasCuda().
std::unique_ptr<Backend> MakeCudaBackend();

}  // namespace permafrost::device
