// How jobs come and go.
// Threads: all methods are safe anywhere; one is served at a time, and never waits for a training step.
#pragma once

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "data/catalog/catalog.h"
#include "jobs/job_book.h"
#include "jobs/job_manager.h"
#include "train/runner.h"

namespace permafrost::jobs {

class Admission {
 public:
  // Borrows everything. `max_jobs`: that have not ended; 0: any number.
  Admission(JobBook& book, data::Catalog& catalog, train::Runner& runner, int64_t max_jobs)
      : book_(book), catalog_(catalog), runner_(runner), max_jobs_(max_jobs) {}

  // As JobManager's methods.
  absl::StatusOr<Job> Create(const CreateRequest& request);
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const;
  absl::StatusOr<Job> Retry(const JobId& id, const RequestKey& request);
  // `ended_at`: only a job that ended then; FailedPrecondition for any other.
  absl::Status Delete(const JobId& id, const RequestKey& request, std::optional<absl::Time> ended_at = std::nullopt);
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const;
  // What Create refuses of the spec alone and of its dataset.
  absl::Status Check(const JobSpec& spec) const;

 private:
  // The job made earlier with the request's request_id, if any. Errors: as FindCreated, also where it was made by
  // another request.
  absl::StatusOr<std::optional<Job>> FindRepeated(const CreateRequest& request) const;
  absl::Status CheckCount() const;
  absl::StatusOr<JobId> ChooseId(const JobId& wanted) const;
  absl::Status CheckDataset(const JobSpec& spec) const;
  // The file of the weights that the job begins with, checked; empty: it begins with drawn ones.
  absl::StatusOr<std::string> ReadInitialWeights(const JobSpec& spec) const;
  // `asked`: of CreateRequest.
  absl::StatusOr<Job> Admit(Job job, const std::string& asked, const std::string& initial_weights)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  JobBook& book_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const int64_t max_jobs_;
  // Serializes what changes job directories. Held across calls into the catalog and the book.
  absl::Mutex mu_;
};

}  // namespace permafrost::jobs
