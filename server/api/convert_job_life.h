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

// Infinite, with a violation of `field`, where the value is none that protobuf's types allow.
absl::Duration DurationFromWire(const google::protobuf::Duration& wire, std::string_view field, Violations& violations);
absl::Time TimeFromWire(const google::protobuf::Timestamp& wire, std::string_view field, Violations& violations);

// State changes, time on the device, and the error of a FAILED one.
void LifeToWire(const jobs::Job& job, v1::Job& wire);

}  // namespace permafrost::api
