// Converts between wire and domain how long a job may take, how it came to where it is, and why it failed.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "base/status.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "jobs/job.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// A violation of `field` where it is none that protobuf's types allow. Not set: infinite.
absl::Duration MaxRuntimeFromWire(const v1::JobSpec& wire, std::string_view field, Violations& violations);
absl::Time DeadlineFromWire(const v1::JobSpec& wire, std::string_view field, Violations& violations);
void LimitsToWire(const spec::JobLimits& limits, v1::JobSpec& wire);

// State changes, time on the device, and the error of a FAILED one.
void LifeToWire(const jobs::Job& job, v1::Job& wire);

}  // namespace permafrost::api
