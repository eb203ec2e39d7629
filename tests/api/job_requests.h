// Requests for jobs, and the jobs made of them, for tests of the conversion.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/wire/convert_job.h"
#include "jobs/job.h"
#include "spec/policy.h"

namespace permafrost::api {

inline v1::CreateJobRequest Minimal() {
  v1::CreateJobRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  return request;
}

// Differs from the domain's own default in every field.
inline constexpr spec::PolicyOptions kServerDefault{
    .policy = spec::Policy::kFreeze, .freeze_at = 40, .on_miss = spec::OnMiss::kEager};

inline absl::StatusOr<jobs::CreateRequest> FromWire(const v1::CreateJobRequest& wire) {
  return CreateRequestFromWire(wire, spec::PolicyOptions());
}

inline jobs::Job MakeJob(const std::string& id, jobs::JobState state) {
  jobs::Job job;
  job.id = JobId(id);
  job.spec.train.dataset = DatasetId("zinc");
  job.state = state;
  job.create_time = absl::FromUnixSeconds(1'700'000'000);
  return job;
}

}  // namespace permafrost::api
