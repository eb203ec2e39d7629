// Job files: YAML or JSON with the field names of JobSpec, in snake_case or lowerCamelCase, and optional `job_id` and
// `labels`.
// Enum values by short name (`l1`) or full name (`LOSS_L1`).
// Threads: everything here is pure but the reading of the file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// JSON if the path ends in .json, YAML otherwise.
// Errors: InvalidArgument "FILE:LINE: KEY: value and what is accepted" for the first thing that is wrong; the system's
// reason where the file cannot be read.
absl::StatusOr<v1::CreateJobRequest> ReadSpecFile(const std::string& path);

enum class SpecSyntax { kYaml, kJson };
// The same for text; `name` stands for the file in messages.
absl::StatusOr<v1::CreateJobRequest> ParseSpec(std::string_view name, SpecSyntax syntax, const std::string& text);

}  // namespace permafrost::client
