// Resource names (`jobs/ID`, `jobs/ID/graphCache`, `datasets/NAME`, `uploads/ID` and `programs/NAME`), and the page
// tokens of lists. A token says where the next page begins. All parsing and formatting of names and page tokens is
// here.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/status.h"

namespace permafrost::api {

// Errors: InvalidArgument with a violation of `field` that gives the value and the accepted form.
absl::StatusOr<JobId> ParseJobName(std::string_view field, std::string_view name);
// Parses the name of a graph cache, and returns the job that owns the cache.
absl::StatusOr<JobId> ParseGraphCacheName(std::string_view field, std::string_view name);
absl::StatusOr<DatasetId> ParseDatasetName(std::string_view field, std::string_view name);
absl::StatusOr<UploadId> ParseUploadName(std::string_view field, std::string_view name);
absl::StatusOr<ProgramId> ParseProgramName(std::string_view field, std::string_view name);

std::string FormatJobName(const JobId& id);
std::string FormatGraphCacheName(const JobId& job);
std::string FormatDatasetName(const DatasetId& id);
std::string FormatUploadName(const UploadId& id);
std::string FormatProgramName(const ProgramId& id);

// Returns the number of results in a page: 50 if `requested` is 0, and at most 1000. Adds a violation of `page_size`
// for a negative number.
int64_t ReadPageSize(int32_t requested, Violations& violations);

// Returns the token of the page whose first dataset is the one after `last`.
std::string MakeDatasetPageToken(const DatasetId& last);
// Returns the id in the token, or an empty id for an empty token. Adds a violation of `page_token` for a token that
// no server made.
DatasetId ReadDatasetPageToken(const std::string& token, Violations& violations);

// The next four functions are the counterparts of the two above for uploads and programs.
std::string MakeUploadPageToken(const UploadId& last);
UploadId ReadUploadPageToken(const std::string& token, Violations& violations);
std::string MakeProgramPageToken(const ProgramId& last);
ProgramId ReadProgramPageToken(const std::string& token, Violations& violations);

// Returns the token of the page that begins at `position` among a graph cache's entries, in the order of insertion.
std::string MakeEntryPageToken(const JobId& job, int64_t position);
// Returns the position in the token, or 0 for an empty token. Adds a violation of `page_token` for a token that no
// server made, or that belongs to another job.
int64_t ReadEntryPageToken(const std::string& token, const JobId& job, Violations& violations);

}  // namespace permafrost::api
