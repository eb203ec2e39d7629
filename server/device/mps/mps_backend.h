// Apple's GPU, through libtorch's MPS backend, which compiles by shape and never evicts: executables bound the shapes
// that reach it.
#pragma once

#include <memory>

#include "device/backend.h"

namespace permafrost::device {

// Whether this machine has one and this libtorch was built for it.
bool HasMps();
// Only where HasMps().
std::unique_ptr<Backend> MakeMpsBackend();

}  // namespace permafrost::device
