// The Runner on libtorch.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "train/runner.h"

namespace permafrost::train {

struct RunnerOptions {
  DeviceKind device = DeviceKind::kAuto;
  // Threads of the math library; 0: the cores this process may use.
  int threads = 0;
};

// Errors: FailedPrecondition for a device that is absent, or a libtorch that steps cannot be captured with.
absl::StatusOr<std::unique_ptr<Runner>> MakeTorchRunner(const RunnerOptions& options);

// Storage of CPU tensors, all jobs of the process. Safe anywhere.
struct StorageUse {
  int64_t bytes = 0;        // live
  int64_t allocations = 0;  // since the process began
};
StorageUse CurrentStorageUse();

}  // namespace permafrost::train
