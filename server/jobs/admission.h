// Decides which jobs are made, retried and deleted.
// Threads: all methods are safe anywhere and never wait for a training step. Calls are served one at a time. If a job
// begins with given weights, they are read and checked before the call is served. So a slow disk delays only other
// jobs that begin with given weights.
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
#include "jobs/job_requests.h"
#include "jobs/program_store.h"
#include "train/runner.h"

namespace permafrost::jobs {

class Admission {
 public:
  // Borrows everything. `programs` is nullptr if the server has no programs. `max_jobs` is the most jobs that may be
  // unfinished at a time; 0: any number. `first_retry` is the wait before the second try to remove files of deleted
  // jobs. The wait doubles with each try.
  Admission(JobBook& book, data::Catalog& catalog, train::Runner& runner, const ProgramStore* programs,
            int64_t max_jobs, absl::Duration first_retry)
      : book_(book),
        catalog_(catalog),
        runner_(runner),
        programs_(programs),
        max_jobs_(max_jobs),
        first_retry_(first_retry) {}

  // See JobManager's methods of these names.
  absl::StatusOr<Job> Create(const CreateRequest& request);
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const;
  absl::StatusOr<Job> Retry(const JobId& id, const RequestKey& request);
  // Deletes an ended job. Returns Ok when the job's record is deleted. Files that cannot be removed are logged and
  // left to RemoveLeavings. If `ended_at` is given, a job that ended at another time is refused with
  // FailedPrecondition.
  absl::Status Delete(const JobId& id, const RequestKey& request, std::optional<absl::Time> ended_at = std::nullopt);
  // If it is time for another try, tries again to remove files of deleted jobs. Call it now and then.
  void RemoveLeavings();
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const;
  // Checks a spec, its program and its dataset, as Create does. Returns the options in the form that the runner
  // takes.
  absl::StatusOr<spec::TrainOptions> Check(const spec::JobSpec& spec) const;

 private:
  // A spec, and the etag of its program. If the spec trains a program, it names the file of the program's archive.
  // Otherwise `etag` is empty.
  struct WithProgram {
    spec::JobSpec spec;
    std::string etag;
  };
  // Finds the program of a spec. Errors: those of ProgramStore::Get.
  absl::StatusOr<WithProgram> FindProgram(const spec::JobSpec& spec) const;
  // Copies the program's archive into the job's directory. Errors: Aborted if the program no longer has this etag;
  // those of ProgramStore::CopyTo.
  absl::Status CopyProgram(const Job& job, const std::string& etag) const;
  // A deleted job whose files still exist.
  struct Leaving {
    JobId id;
    int64_t sequence = 0;
  };
  // Logs the error and leaves the files to RemoveLeavings.
  void Leave(const Leaving& leaving, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the job's directory away. Does nothing if another job has taken the id since then.
  absl::Status MoveAway(const Leaving& leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the job that was made earlier with the request's request_id, if any. Errors: those of FindCreated;
  // AlreadyExists if a different request made that job.
  absl::StatusOr<std::optional<Job>> FindRepeated(const CreateRequest& request) const;
  // Returns the result of FindRepeated. If there is no such job, checks that one more job may be made now.
  absl::StatusOr<std::optional<Job>> FindRepeatedOrCheckNew(const CreateRequest& request) const;
  // The weights with which a job begins, as they were read before the job's turn.
  struct Beginning {
    std::string weights;       // the content of the file
    int64_t job_sequence = 0;  // sequence of the job that made the weights; 0: they come from a file
    std::string trained_uid;   // uid of that job's dataset; empty: unknown
    // The result of checking the weights against a dataset.
    absl::Status fits;
    // The uid of the dataset that was checked; nullopt: none was checked yet.
    std::optional<std::string> dataset_uid;
  };
  // Maps the weights' rows of nodes to the nodes with equal names in `dataset`. Then checks that the weights fit the
  // dataset. `from` is the job that made the weights; nullptr: they come from a file.
  absl::Status Fit(const spec::JobSpec& spec, const data::Dataset& dataset, const Job* from,
                   Beginning& beginning) const;
  // Creates a job from a request that CheckRequest has accepted. `beginning` is the result of ReadBeginning, and is
  // not used if the job begins with randomly drawn weights. If `beginning` is an error, the error is reported in its
  // proper order among the errors of the other checks.
  absl::StatusOr<Job> CreateWith(const CreateRequest& request, absl::StatusOr<Beginning> beginning)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckCount() const;
  absl::StatusOr<JobId> ChooseId(const JobId& wanted) const;
  // Checks that the dataset is ready and suits the spec. Returns notes for the job's user, one line each.
  absl::StatusOr<std::vector<std::string>> CheckDataset(const spec::JobSpec& spec) const;
  // Reads the weights that the spec's init_from names; init_from must be given. Errors: those of finding and reading
  // the weights.
  absl::StatusOr<Beginning> ReadBeginning(const spec::JobSpec& spec) const ABSL_LOCKS_EXCLUDED(mu_);
  // Checks that the weights fit the dataset. The dataset must have a summary.
  absl::Status CheckInitialWeights(const spec::JobSpec& spec, const data::Dataset& dataset,
                                   const Beginning& beginning) const;
  // Returns the weights with which the job begins; empty: they are drawn at random. Repeats the checks whose results
  // may have changed since the weights were read: the job that made the weights must still exist. If the dataset was
  // replaced, the weights must fit the new one.
  absl::StatusOr<std::string> TakeInitialWeights(const spec::JobSpec& spec, absl::StatusOr<Beginning> beginning) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the job's files and puts the job on record. `asked` is that of the CreateRequest. `program_etag` comes from
  // FindProgram.
  absl::StatusOr<Job> Admit(Job job, const std::string& asked, const std::string& initial_weights,
                            const std::string& program_etag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  JobBook& book_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const ProgramStore* const programs_;
  const int64_t max_jobs_;
  const absl::Duration first_retry_;
  // Held while a job that begins with given weights is made, including the reading of the weights. Only one file of
  // weights may be in memory at a time (ReadWeightsFile).
  absl::Mutex reading_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  // Serialises changes of job directories. Held across calls into the catalog and the book.
  absl::Mutex mu_;
  std::vector<Leaving> leavings_ ABSL_GUARDED_BY(mu_);
  // True if leavings_ is not empty. Read without the lock by callers that must not wait while a new job is checked.
  std::atomic<bool> any_leavings_{false};
  int leavings_tries_ ABSL_GUARDED_BY(mu_) = 0;  // number of tries since the newest leaving was added
  Stopwatch since_leavings_try_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
