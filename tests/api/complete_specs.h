// Converts specs of jobs from the wire into the domain and back, over the datasets that job_specs.h names.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "api/wire/convert_job.h"
#include "job_requests.h"
#include "job_specs.h"

namespace permafrost::api {

inline std::optional<jobs::DatasetTraits> TraitsOf(const DatasetId& id) {
  return jobs::DatasetTraits{.level = id == DatasetId("set") ? spec::ModelLevel::kGraph : spec::ModelLevel::kNode,
                             .gives_links = id == DatasetId("linked")};
}

inline absl::StatusOr<spec::JobSpec> SpecOf(const v1::JobSpec& wire) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = wire;
  auto made = CreateRequestFromWire(request, kServerDefault, TraitsOf);
  if (!made.ok()) return made.status();
  if (absl::Status fits = jobs::CheckRequest(*made); !fits.ok()) return fits;
  return std::move(made->spec);
}

inline v1::JobSpec WireOf(const spec::JobSpec& spec) {
  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec = spec;
  return JobToWire(job).spec();
}

// Returns the spec exactly as `text` has it.
inline v1::JobSpec Bare(const std::string& text) {
  v1::JobSpec wire;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &wire)) << text;
  return wire;
}

// Returns the spec that the server reports after it made a job of `text`: every field is set.
inline v1::JobSpec Complete(const std::string& text) {
  const v1::JobSpec wire = Bare(text);
  const auto spec = SpecOf(wire);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status();
  return spec.ok() ? WireOf(*spec) : wire;
}

}  // namespace permafrost::api
