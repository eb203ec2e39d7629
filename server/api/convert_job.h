// Jobs between the wire and the domain.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graphcache/policy.h"
#include "jobs/job.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// Defaults are filled in; those of the graph cache are the server's. Errors: InvalidArgument where the domain cannot
// hold what the wire says, with a violation for every bad field at once. Values out of range are the job manager's to
// refuse.
absl::StatusOr<jobs::CreateRequest> CreateRequestFromWire(const v1::CreateJobRequest& wire,
                                                          const graphcache::PolicyOptions& default_graph_cache);

v1::Job JobToWire(const jobs::Job& job);

// Adds violations of `states[I]`.
std::vector<jobs::JobState> JobStatesFromWire(const v1::ListJobsRequest& wire, Violations& violations);

// Adds a violation of `artifact`.
jobs::Artifact ArtifactFromWire(int artifact, Violations& violations);

}  // namespace permafrost::api
