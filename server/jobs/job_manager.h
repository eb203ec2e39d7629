// Accepts jobs, queues them by priority then age, and runs one at a time on the device thread, which it owns.
// Threads: all methods are safe anywhere and never wait for a training step.
// Invariant: a job is in the store before Create answers; every state change is in the store before anyone sees it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/job.h"
#include "jobs/job_book.h"
#include "jobs/job_requests.h"
#include "jobs/job_store.h"
#include "jobs/run_context.h"
#include "spec/job_spec.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "train/checkpoint_files.h"
#include "train/runner.h"

namespace permafrost::jobs {

class ProgramStore;
class RequestLog;

struct JobManagerOptions {
  std::filesystem::path state_dir;  // permafrost.db and jobs/ID/ live here
  // Start although the database never held a job and jobs/ holds checkpoints or artifacts of some; they are set aside.
  bool quarantine_unknown_jobs = false;
  // Wait before a job runs again that an error of the machine ended, and before files of a deleted job are tried to be
  // removed again; it doubles each time, up to five minutes.
  absl::Duration first_retry = absl::Seconds(1);
  // True: a queued job takes the device from one of lower priority.
  bool preempt = true;
  const ProgramStore* programs = nullptr;  // for jobs that train one; it outlives the manager
  KeepFinished keep_finished;
  int64_t max_log_bytes = 0;  // kept of each job's log; 0: all
  // Interval between two looks at deadlines of waiting jobs and at waits that end.
  absl::Duration attend_every = absl::Seconds(1);
  // Most jobs that have not ended; one more is refused. 0: any number.
  int64_t max_jobs = 0;
  // The clock that ages and deadlines are measured by: the wall clock, as far as it is believed. It is called under
  // locks and at each step of a job with a deadline, so it must not wait for a disk.
  std::function<absl::Time()> now = [] { return absl::Now(); };
  // Tells whether ended jobs may be deleted for --keep-finished-jobs. They may not while the clock is in doubt, since
  // it puts them in order.
  std::function<bool()> may_expire = [] { return true; };
  // Told once, on the device thread, that the device is unusable until the process ends (base/status.h): its job
  // goes back to the queue, and the manager drains. It must not block, nor call back.
  std::function<void(const absl::Status&)> on_device_fault = [](const absl::Status&) {};
};

// A book of jobs together with all that works on it: admission, the device thread, planner, evaluator, retention.
class JobManager : private JobBook {
 public:
  // Interrupted jobs (on the device) are queued again (cancelling ones become cancelled, pausing ones paused). A
  // job is failed instead once the server died five times in a row while it was at the same step: it would take every
  // later server down too. Directories of no job on record are renamed to `.quarantine-*`. Does not start the device
  // thread. All references outlive the manager. Errors: FailedPrecondition where the database never held a job
  // beside directories that hold work.
  static absl::StatusOr<std::unique_ptr<JobManager>> Open(const JobManagerOptions& options, data::Catalog& catalog,
                                                          train::Runner& runner, telemetry::JobMetrics& metrics,
                                                          telemetry::GraphCacheMetrics& cache_metrics);
  ~JobManager();  // drains

  void Start();

  using JobBook::CheckDatasetUnused;
  using JobBook::CountByState;
  using JobBook::Drain;
  using JobBook::draining;
  using JobBook::Get;
  using JobBook::ReadLog;
  using JobBook::Subscribe;
  using JobBook::SubscribeLog;
  using JobBook::watchers;

  // Errors: as proto JobService.CreateJob.
  absl::StatusOr<Job> Create(const CreateRequest& request);
  // Finds the job that an earlier CreateRequest with this `request_id` and `asked` made. nullopt: none is known, or
  // there is no id. Errors: NotFound, reason JOB_NOT_FOUND, if the job is deleted; AlreadyExists, reason
  // REQUEST_ID_REUSED, if another call had the id.
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const;
  // nullopt where they are not known (no such dataset, or not imported yet).
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const;
  // `page_token` empty for the first page. InvalidArgument (field page_token) for a token it did not make, or one made
  // for another query; (field filter) for a filter that is none.
  absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token, const JobQuery& query) const;
  // `request_id`, here and below: of a call that may come again, which is then not done a second time, and answered
  // with the job as it is then; empty: it has none. AlreadyExists, reason REQUEST_ID_REUSED, where it was another
  // call's. Errors besides: as proto JobService's methods of these names.
  absl::StatusOr<Job> Cancel(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Pause(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Resume(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Retry(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const std::string& request_id = "");
  absl::Status Delete(const JobId& id, const std::string& request_id = "");
  // Newest first. Reads the disk; every byte with `verify`. Unavailable where it cannot.
  absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const;
  // FailedPrecondition (reason ARTIFACT_NOT_READY) while the job has not made it.
  absl::StatusOr<std::filesystem::path> ArtifactPath(const JobId& id, Artifact artifact) const;

  // Returns the job's graph cache as it is now, or for an ended job as it was last. Before the first step it has only
  // its options.
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const;
  // Returns entries in the order in which they were inserted; they may be a moment old.
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const;
  // Records a command (its sequence and step are set here) and calls `done` once: with the cache after it took effect
  // at a step boundary of the running job; at once, as recorded, for a queued job (command_step: where it goes on); or
  // with an error: InvalidArgument, NotFound, FailedPrecondition (reason JOB_ENDED, also where the job ends first),
  // Unavailable (reason SERVER_DRAINING: on record, takes effect when the job goes on). `done` is called on any thread,
  // possibly before this returns, and must not call back into the manager. `request_id`: as of the verbs; where it
  // comes again, `done` is given the cache as it is then, at once.
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& request_id,
                         const CommandLog::Done& done);

  // The log of calls that change something else than jobs.
  RequestLog& requests();

  // Returns what each cache policy would cost a job of this spec; nothing is created. Waits for it. With `measure`,
  // bytes and times are those of the device if it is idle. `wanted` is asked every few milliseconds, by one thread at a
  // time. Errors: as Create, Unavailable also once the book drains; Cancelled once it is not wanted.
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted);

  // One pass of a job's weights over rows of a dataset; waits for it, and leaves nothing behind. `on_progress` hears of
  // rows done and in all (0: not known yet), and returns whether to go on; Cancelled when not. Errors: NotFound;
  // InvalidArgument; FailedPrecondition, reason ARTIFACT_NOT_READY or of a dataset that is not READY; Unavailable once
  // the book drains, and on another device than the CPU while a job runs.
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress);

  // Trains one rank of a job that another server leads; waits for its end, and leaves nothing behind. `on_progress`
  // hears of 0 steps once the device has taken the rank, and then of its steps; it returns whether the leader is still
  // there. Errors: InvalidArgument; FailedPrecondition, reason DATASET_MISSING, DATASET_DIFFERS, or RANK_FAILED for an
  // error of the job itself; Unavailable, reason DEVICE_BUSY while the device has a job or a rank, and once the book
  // drains or another rank has gone.
  absl::Status RunRank(const RankRequest& request, const OnRankProgress& on_progress);

  // Returns the entries that a job of this spec would add to the graph cache of MPS; nothing is created. Waits for it.
  // Errors: as PlanGraphCache; Unavailable on MPS while a job runs.
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                          const std::function<bool()>& wanted);

  // Tells what the device thread does just now. Waits for no store and no step.
  DeviceActivity device_activity() const;
  // Waits until the device thread has ended, after Drain.
  void Join();

 private:
  struct Parts;

  JobManager(std::unique_ptr<JobStore> store, JobFiles files, const JobManagerOptions& options, data::Catalog& catalog,
             train::Runner& runner, const RunMetrics& metrics);

  std::unique_ptr<Parts> parts_;
};

}  // namespace permafrost::jobs
