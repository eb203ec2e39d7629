// How jobs come and go.
// Threads: all methods are safe anywhere; one is served at a time, and never waits for a training step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "data/catalog/catalog.h"
#include "jobs/job_book.h"
#include "jobs/job_manager.h"
#include "train/runner.h"

namespace permafrost::jobs {

class Admission {
 public:
  // Borrows everything. `max_jobs`: that have not ended; 0: any number. `first_retry`: wait before the removal of files
  // that failed is tried again; it doubles each time.
  Admission(JobBook& book, data::Catalog& catalog, train::Runner& runner, int64_t max_jobs, absl::Duration first_retry)
      : book_(book), catalog_(catalog), runner_(runner), max_jobs_(max_jobs), first_retry_(first_retry) {}

  // As JobManager's methods.
  absl::StatusOr<Job> Create(const CreateRequest& request);
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const;
  absl::StatusOr<Job> Retry(const JobId& id, const RequestKey& request);
  // `ended_at`: only a job that ended then; FailedPrecondition for any other. Ok once the job is off the record: files
  // that cannot be removed are told in a warning and left to RemoveLeavings.
  absl::Status Delete(const JobId& id, const RequestKey& request, std::optional<absl::Time> ended_at = std::nullopt);
  // Tries again to remove the files of deleted jobs that could not be removed, where it is time. Called now and then.
  void RemoveLeavings();
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const;
  // What Create refuses of the spec alone and of its dataset.
  absl::Status Check(const JobSpec& spec) const;

 private:
  // A deleted job whose files are there still.
  struct Leaving {
    JobId id;
    int64_t sequence = 0;
  };
  // To be tried again by RemoveLeavings, after this error.
  void Leave(const Leaving& leaving, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves what lies under the job's id away, unless another job on record has that id since.
  absl::Status MoveAway(const Leaving& leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  const absl::Duration first_retry_;
  // Serializes what changes job directories. Held across calls into the catalog and the book.
  absl::Mutex mu_;
  std::vector<Leaving> leavings_ ABSL_GUARDED_BY(mu_);
  // Whether there are any, for who must not wait for a submit that is checked.
  std::atomic<bool> any_leavings_{false};
  int leavings_tries_ ABSL_GUARDED_BY(mu_) = 0;  // of all of them, since the newest came
  Stopwatch since_leavings_try_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
