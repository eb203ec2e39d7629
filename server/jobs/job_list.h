// The filter that selects the jobs of a list, and the tokens of the pages of a list.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "jobs/job.h"
#include "jobs/job_requests.h"

namespace permafrost::jobs {

// Selects the jobs of a list by ListJobsRequest.filter, a subset of AIP-160. The contract in job.proto defines the
// language.
// Threads: values; all methods of a const filter are safe anywhere.
class JobFilter {
 public:
  // Makes a filter that matches every job.
  JobFilter();
  ~JobFilter();
  JobFilter(JobFilter&&) noexcept;
  JobFilter& operator=(JobFilter&&) noexcept;

  // Parses a filter. A text that is empty or blank matches every job. Errors: InvalidArgument (field filter). The
  // message names the position (the first character is 1), the text found there, and what would be accepted.
  static absl::StatusOr<JobFilter> Parse(std::string_view text);

  bool Matches(const Job& job) const;
  bool takes_all() const { return root_ == nullptr; }

  // A node of the parsed expression.
  struct Node;

 private:
  std::unique_ptr<const Node> root_;
};

// Page tokens of the job list. A token is opaque text. It holds the sequence of the last job on the page, and a
// checksum of this sequence, the states and the filter. Sequences follow the order of creation. So no job is repeated
// or skipped because of jobs that were made meanwhile.
// Threads: pure functions.

// Makes the token for the page after the job with this sequence. The order of `query.states` does not matter.
std::string MakePageToken(int64_t sequence, const JobQuery& query);
// Returns the sequence in the token. Errors: InvalidArgument (field page_token) unless MakePageToken made the token
// for this query.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobQuery& query);

}  // namespace permafrost::jobs
