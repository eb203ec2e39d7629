// Pages of a list.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/status.h"

namespace permafrost::api {

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
