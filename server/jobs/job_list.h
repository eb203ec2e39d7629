// Lists of jobs: the filter that selects them, and the tokens that lead from page to page.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "jobs/job.h"
#include "jobs/job_requests.h"

namespace permafrost::jobs {

// Selects the jobs of a list by ListJobsRequest.filter, a subset of AIP-160. The contract in job.proto says the
// language. Threads: values; all methods of a const filter are safe anywhere.
class JobFilter {
 public:
  // Takes every job.
  JobFilter();
  ~JobFilter();
  JobFilter(JobFilter&&) noexcept;
  JobFilter& operator=(JobFilter&&) noexcept;

  // Empty, or nothing but blanks: every job. InvalidArgument (field filter) that names the place (the first character
  // is 1), what stands there and what would be accepted.
  static absl::StatusOr<JobFilter> Parse(std::string_view text);

  bool Matches(const Job& job) const;
  bool takes_all() const { return root_ == nullptr; }

  // A node of the parsed expression.
  struct Node;

 private:
  std::unique_ptr<const Node> root_;
};

// Page tokens of the job list: opaque text that names where the last page ended and for which states and filter.
// A position in the order of creation, so that jobs made meanwhile neither repeat nor hide others.
// Threads: pure functions.

// Makes the token of a page that ended with the job of this sequence. The order of `query.states` does not matter.
std::string MakePageToken(int64_t sequence, const JobQuery& query);
// The sequence. InvalidArgument (field page_token) for any text that MakePageToken did not make for this query.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobQuery& query);

}  // namespace permafrost::jobs
