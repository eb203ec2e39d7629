// Page tokens of the job list: opaque text that names where the last page ended and for which states and filter.
// A position in the order of creation, so that jobs made meanwhile neither repeat nor hide others.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "jobs/job_requests.h"

namespace permafrost::jobs {

// Makes the token of a page that ended with the job of this sequence. The order of `query.states` does not matter.
std::string MakePageToken(int64_t sequence, const JobQuery& query);
// The sequence. InvalidArgument (field page_token) for any text that MakePageToken did not make for this query.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobQuery& query);

}  // namespace permafrost::jobs
