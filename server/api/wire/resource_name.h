// Resource names: `jobs/ID`, `jobs/ID/graphCache`, `datasets/NAME`, `uploads/ID` and `programs/NAME`, and the tokens of
// pages of a list, which tell the last name of a page. The only place that takes them apart or puts them together.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/status.h"

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

// 0: 50. More than 1000: 1000. A negative one is a violation of `page_size`.
int64_t ReadPageSize(int32_t requested, Violations& violations);

// Token of the page of datasets that begins after `last`.
std::string MakeDatasetPageToken(const DatasetId& last);
// An empty id for an empty token. Adds a violation of `page_token` for a token that no server made.
DatasetId ReadDatasetPageToken(const std::string& token, Violations& violations);

// The same for uploads and programs.
std::string MakeUploadPageToken(const UploadId& last);
UploadId ReadUploadPageToken(const std::string& token, Violations& violations);
std::string MakeProgramPageToken(const ProgramId& last);
ProgramId ReadProgramPageToken(const std::string& token, Violations& violations);

// Token of the page of a graph cache's entries that begins at `position`, counted in the order of insertion.
std::string MakeEntryPageToken(const JobId& job, int64_t position);
// 0 for an empty token. Adds a violation of `page_token` for a token that no server made, or one of another job.
int64_t ReadEntryPageToken(const std::string& token, const JobId& job, Violations& violations);

}  // namespace permafrost::api
