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

}  // namespace permafrost::api
