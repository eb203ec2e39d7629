// Job files: YAML or JSON with the field names of JobSpec, in snake_case or lowerCamelCase, and optional `job_id` and
// `labels`. Enum values have their short name (`l1`) or full name (`LOSS_L1`).
// Threads: everything here is pure except for reading the file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Reads JSON if the path ends in .json, and YAML otherwise. Errors: InvalidArgument "FILE:LINE: KEY: value and what
// is accepted" for the first fault, or the system's reason if the file cannot be read.
absl::StatusOr<v1::CreateJobRequest> ReadSpecFile(const std::string& path);

enum class SpecSyntax { kYaml, kJson };
// Parses text like ReadSpecFile. `name` stands for the file in messages.
absl::StatusOr<v1::CreateJobRequest> ParseSpec(std::string_view name, SpecSyntax syntax, const std::string& text);

}  // namespace permafrost::client
