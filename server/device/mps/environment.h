// The environment variables that libtorch's MPS backend reads, checked before it does: it reads most of them when it is
// loaded or at its first allocation, and tells of a bad one in the middle of a job.
// Threads: a pure function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device.h"

namespace permafrost::device {

struct MpsEnvironment {
  std::vector<DeviceSetting> settings;  // those that are set, and the watermarks as they hold
  std::vector<std::string> warnings;    // one line each
};

// Value of an environment variable; nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Errors: FailedPrecondition, one line, for a value that libtorch would refuse or misread. PYTORCH_ENABLE_MPS_FALLBACK
// is warned of: steps would run on the CPU in part, unseen.
absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment);

}  // namespace permafrost::device
