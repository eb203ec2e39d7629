// Flags of how a job's weights begin and change (client/job_flags.h).
#pragma once

#include "CLI/CLI.hpp"
#include "client/job_flags.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

void AddUpdateOptions(CLI::App& command, UpdateFlags& flags);
void AddWeightOptions(CLI::App& command, WeightFlags& flags);

// The flags that are given override the spec.
void Override(const UpdateFlags& flags, v1::OptimizerSpec& optimizer);
void Override(const WeightFlags& flags, v1::JobSpec& spec);

}  // namespace permafrost::client
