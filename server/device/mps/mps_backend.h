// Apple's GPU, through libtorch's MPS backend. It compiles by shape and never evicts: executables bound the shapes that
// reach it, and EmptyCaches forgets what it compiled. All of it goes through at::detail::getMPSHooks(), so that this
// compiles, and is tested against other hooks, where there is no such GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/backend.h"

namespace permafrost::device {

// Returns whether this machine has an MPS device and this libtorch was built for it.
bool HasMps();
// Only where HasMps(). Errors: FailedPrecondition for an environment that libtorch would refuse later.
absl::StatusOr<std::unique_ptr<Backend>> MakeMpsBackend(const BackendOptions& options);

}  // namespace permafrost::device
