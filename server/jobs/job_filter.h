// Selects the jobs of a list by ListJobsRequest.filter, a subset of AIP-160. The contract in job.proto says the
// language. Threads: values; all methods of a const filter are safe anywhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "jobs/job.h"

namespace permafrost::jobs {

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

}  // namespace permafrost::jobs
