// Resource names: `jobs/ID`, `jobs/ID/graphCache`, `datasets/NAME`, `uploads/ID` and `programs/NAME`. The only place
// that takes them apart or puts them together. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"

namespace permafrost::api {

// Errors: InvalidArgument with a violation of `field` that says the value and the form accepted.
absl::StatusOr<JobId> ParseJobName(std::string_view field, std::string_view name);
// The job whose cache it is.
absl::StatusOr<JobId> ParseGraphCacheName(std::string_view field, std::string_view name);
absl::StatusOr<DatasetId> ParseDatasetName(std::string_view field, std::string_view name);
absl::StatusOr<UploadId> ParseUploadName(std::string_view field, std::string_view name);
absl::StatusOr<ProgramId> ParseProgramName(std::string_view field, std::string_view name);

std::string FormatJobName(const JobId& id);
std::string FormatGraphCacheName(const JobId& job);
std::string FormatDatasetName(const DatasetId& id);
std::string FormatUploadName(const UploadId& id);
std::string FormatProgramName(const ProgramId& id);

}  // namespace permafrost::api
