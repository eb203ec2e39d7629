// Decides which jobs are made, retried and deleted.
// Threads: all methods are safe anywhere and never wait for a training step. One is served at a time; weights that a
// job begins with are read and checked before its turn, so that a slow disk keeps only jobs waiting that begin with
// some too.
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
  // Borrows everything. `programs` may be null: there are none. `max_jobs`: that have not ended; 0: any number.
  // `first_retry`: wait before the removal of files that failed is tried again; it doubles each time.
  Admission(JobBook& book, data::Catalog& catalog, train::Runner& runner, const ProgramStore* programs,
            int64_t max_jobs, absl::Duration first_retry)
      : book_(book),
        catalog_(catalog),
        runner_(runner),
        programs_(programs),
        max_jobs_(max_jobs),
        first_retry_(first_retry) {}

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
  // Refuses what Create refuses for the spec alone, for its program and for its dataset. Returns the options as the
  // runner takes them.
  absl::StatusOr<spec::TrainOptions> Check(const spec::JobSpec& spec) const;

 private:
  // A spec with the place of its program's archive, and that program's etag, if it trains one.
  struct WithProgram {
    spec::JobSpec spec;
    std::string etag;
  };
  // Errors: those of ProgramStore::Get.
  absl::StatusOr<WithProgram> FindProgram(const spec::JobSpec& spec) const;
  // Gives the job an archive of its own. Errors: Aborted where the program is not the one of this etag any more; those
  // of ProgramStore::CopyTo.
  absl::Status CopyProgram(const Job& job, const std::string& etag) const;
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
  // The same; where there is none, whether one more job may be made now.
  absl::StatusOr<std::optional<Job>> FindRepeatedOrCheckNew(const CreateRequest& request) const;
  // Weights to begin with, as they were found before the job's turn.
  struct Beginning {
    std::string weights;       // a whole file
    int64_t job_sequence = 0;  // of the job that they are of, if they are of one
    std::string trained_uid;   // of its dataset; empty: nobody knows
    // Ok if they fit, and the uid of the dataset that they were held against; nullopt: they were held against none.
    absl::Status fits;
    std::optional<std::string> dataset_uid;
  };
  // Gives rows of nodes in the weights to the nodes of the same names in the spec's dataset, and checks that they fit
  // it. `from`: the job that they are of; null: they are of a file.
  absl::Status Fit(const spec::JobSpec& spec, const data::Dataset& dataset, const Job* from,
                   Beginning& beginning) const;
  // Creates a job from a request whose own values are right. `beginning`: the result of ReadBeginning, whose error is
  // told in its place among the other checks. It is not read if the job begins with drawn weights.
  absl::StatusOr<Job> CreateWith(const CreateRequest& request, absl::StatusOr<Beginning> beginning)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckCount() const;
  absl::StatusOr<JobId> ChooseId(const JobId& wanted) const;
  // Returns what the job's user should know, a line each.
  absl::StatusOr<std::vector<std::string>> CheckDataset(const spec::JobSpec& spec) const;
  // Reads what the spec's init_from names; it must be given. Errors: of finding and reading it.
  absl::StatusOr<Beginning> ReadBeginning(const spec::JobSpec& spec) const ABSL_LOCKS_EXCLUDED(mu_);
  // Checks that the weights fit the dataset, which has a summary.
  absl::Status CheckInitialWeights(const spec::JobSpec& spec, const data::Dataset& dataset,
                                   const Beginning& beginning) const;
  // Returns the weights that the job begins with; empty: drawn ones. Asks again what may have changed since they were
  // read: the job that they are of must still be there, and they must fit the dataset if it is another one by now.
  absl::StatusOr<std::string> TakeInitialWeights(const spec::JobSpec& spec, absl::StatusOr<Beginning> beginning) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `asked`: of CreateRequest. `program_etag`: of FindProgram.
  absl::StatusOr<Job> Admit(Job job, const std::string& asked, const std::string& initial_weights,
                            const std::string& program_etag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  JobBook& book_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const ProgramStore* const programs_;
  const int64_t max_jobs_;
  const absl::Duration first_retry_;
  // Held while a job is made that does not begin with drawn weights, from their reading on: memory has room for one
  // such file at a time (ReadWeightsFile).
  absl::Mutex reading_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  // Serializes what changes job directories. Held across calls into the catalog and the book.
  absl::Mutex mu_;
  std::vector<Leaving> leavings_ ABSL_GUARDED_BY(mu_);
  // True if there are any. Callers that must not wait for a submit that is checked read it without the lock.
  std::atomic<bool> any_leavings_{false};
  int leavings_tries_ ABSL_GUARDED_BY(mu_) = 0;  // of all of them, since the newest came
  Stopwatch since_leavings_try_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
