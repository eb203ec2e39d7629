// The program and the module compare this version before one calls the other.
#pragma once

#include <torch/headeronly/version.h>

#ifndef PERMAFROST_VERSION
#error "CMake defines PERMAFROST_VERSION"
#endif

namespace permafrost::device {

inline constexpr char kCudaModuleVersion[] = PERMAFROST_VERSION "/" TORCH_VERSION;

}  // namespace permafrost::device
