// Requests for a job, as tests of the conversion make them.
#pragma once

#include "absl/status/statusor.h"
#include "api/wire/convert_job.h"
#include "spec/policy.h"

namespace permafrost::api {

inline v1::CreateJobRequest Minimal() {
  v1::CreateJobRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  return request;
}

// Unlike the domain's own default in every field.
inline constexpr spec::PolicyOptions kServerDefault{
    .policy = spec::Policy::kFreeze, .freeze_at = 40, .on_miss = spec::OnMiss::kEager};

inline absl::StatusOr<jobs::CreateRequest> FromWire(const v1::CreateJobRequest& wire) {
  return CreateRequestFromWire(wire, spec::PolicyOptions());
}

}  // namespace permafrost::api
