// Updates and checkpoints of jobs between the wire and the domain.
// Threads: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "google/protobuf/map.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"
#include "train/checkpoint_files.h"

namespace permafrost::api {

jobs::Labels LabelsFromWire(const google::protobuf::Map<std::string, std::string>& wire);

// Reads what the mask, or without one the job, says. InvalidArgument with a violation for each path that is none.
absl::StatusOr<jobs::JobUpdate> UpdateFromWire(const v1::UpdateJobRequest& wire);

v1::Checkpoint CheckpointToWire(const train::CheckpointInfo& info);

}  // namespace permafrost::api
