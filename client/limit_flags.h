// The flags that bound how long a job may take: those of `job submit` and `job update`.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct LimitFlags {
  std::optional<std::string> max_runtime, deadline;
  std::optional<int32_t> max_retries;
};

void AddLimitFlags(CLI::App& command, LimitFlags& flags);
void Override(const LimitFlags& flags, v1::JobSpec& spec);

// The same for a job that is there, of which "none" takes a limit away. `max_retries` is not added.
void AddLimitUpdateFlags(CLI::App& command, LimitFlags& flags);
// With the fields in the mask.
void ApplyLimitUpdate(const LimitFlags& flags, v1::UpdateJobRequest& request);

}  // namespace permafrost::client
