// The CPU: steps are recorded, and replayed from a plan of their storage.
#pragma once

#include <memory>

#include "device/backend.h"

namespace permafrost::device {

// Puts the counting allocator in place (storage.h). Always there.
std::unique_ptr<Backend> MakeCpuBackend();

}  // namespace permafrost::device
