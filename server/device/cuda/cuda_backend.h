// An NVIDIA GPU, the first one. Steps run as they are; CUDA graphs are not captured yet.
#pragma once

#include <memory>

#include "device/backend.h"

namespace permafrost::device {

// Whether this machine has one and this libtorch was built for it.
bool HasCuda();
// Only where HasCuda().
std::unique_ptr<Backend> MakeCudaBackend();

}  // namespace permafrost::device
