// Jobs in SQLite (WAL, synchronous=FULL): what a method returned Ok for survives the death of the process.
// Threads: all methods are safe anywhere; one connection under one lock.
// Specs, progress and results are JSON columns, so that a new field needs no migration; the schema version is checked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "jobs/job.h"

namespace permafrost::jobs {

struct ListOptions {
  int64_t page_size = 50;                  // 1..1000
  std::optional<int64_t> before_sequence;  // only older ones: where the last page ended
  std::vector<JobState> states;            // empty: all
};

class JobStore {
 public:
  // Creates or opens `path`. FailedPrecondition for a schema version that is not known.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::filesystem::path& path);
  virtual ~JobStore() = default;

  // Sets job.sequence. AlreadyExists (reason JOB_ALREADY_EXISTS) for a taken id.
  virtual absl::Status Insert(Job& job) = 0;
  // State, times, error, progress, result, resumes, crashes; not the epochs.
  virtual absl::Status Update(const Job& job) = 0;
  // Inserts or replaces.
  virtual absl::Status PutEpoch(const JobId& id, const train::EpochMetrics& metrics) = 0;
  // NotFound, reason JOB_NOT_FOUND. With its epochs.
  virtual absl::StatusOr<Job> Get(const JobId& id) const = 0;
  virtual absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const = 0;
  // Newest first, without epochs.
  virtual absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const = 0;
  virtual absl::Status Delete(const JobId& id) = 0;
};

}  // namespace permafrost::jobs
