// The flags of `job update` that bound how long a job may take, of which "none" takes a limit away.
// Threads: one.
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct LimitFlags {
  std::optional<std::string> max_runtime, deadline;
};

void AddLimitFlags(CLI::App& command, LimitFlags& flags);
// With the fields in the mask.
void ApplyLimits(const LimitFlags& flags, v1::UpdateJobRequest& request);

}  // namespace permafrost::client
