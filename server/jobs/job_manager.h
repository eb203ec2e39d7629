// Accepts jobs, queues them by priority and then by age, and runs one at a time on the device thread. Owns that
// thread.
// Threads: all methods are safe anywhere and never wait for a training step.
// Invariant: a job is in the store before Create answers, and a change of state is in the store before a caller can
// see it.
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
  // If true, Open succeeds although the database never held a job and jobs/ holds checkpoints or artifacts of jobs.
  // Their directories are quarantined.
  bool quarantine_unknown_jobs = false;
  // If an error of the machine ended a run, the wait before the job runs again. Also the wait before another try to
  // remove the files of a deleted job. It doubles with each try, up to five minutes.
  absl::Duration first_retry = absl::Seconds(1);
  // If true, a queued job takes the device from a job of lower priority.
  bool preempt = true;
  const ProgramStore* programs = nullptr;  // for jobs that train one; must outlive the manager; nullptr: none
  KeepFinished keep_finished;
  int64_t max_log_bytes = 0;  // most bytes kept of each job's log; 0: all
  // The interval at which the manager checks whether limits of waiting jobs have passed, and whether waits have
  // ended.
  absl::Duration attend_every = absl::Seconds(1);
  // The most jobs that may be unfinished at a time; Create refuses any further job. 0: any number.
  int64_t max_jobs = 0;
  // The clock that measures ages and deadlines: the wall clock, as far as it can be trusted. It is read under locks,
  // and at each step of a job with a deadline, so it must not wait for a disk.
  std::function<absl::Time()> now = [] { return absl::Now(); };
  // Returns whether --keep-finished-jobs may delete ended jobs now. It may not while the clock is in doubt, because
  // the jobs' order of age depends on the clock.
  std::function<bool()> may_expire = [] { return true; };
  // Called once, on the device thread, when the device becomes unusable until the process ends (base/status.h). The
  // manager drains, and the device's job goes back to the queue. The callback must not block, and must not call back
  // into the manager.
  std::function<void(const absl::Status&)> on_device_fault = [](const absl::Status&) {};
};

// A book of jobs, with everything that uses it: admission, the device thread, planner, evaluator, host of ranks,
// retention.
class JobManager : private JobBook {
 public:
  // Opens the database and recovers its jobs. Does not start the device thread. All references must outlive the
  // manager. An interrupted job, one that was on the device, is queued again. If it was being cancelled, it becomes
  // cancelled; if it was pausing, it becomes paused. But if the server died five times in a row while the job was at
  // the same step, the job fails. Otherwise it would take down every later server. Directories of jobs that are not
  // on record are renamed to `.quarantine-*`. Errors: FailedPrecondition if the database never held a job but
  // directories hold work.
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

  // Creates a job, or returns the one that the same call made before. Errors: those of JobService.CreateJob
  // (job.proto).
  absl::StatusOr<Job> Create(const CreateRequest& request);
  // Finds the job that an earlier CreateRequest with this `request_id` and `asked` made. Returns nullopt if none is
  // known, or if `request_id` is empty. Errors: NotFound, reason JOB_NOT_FOUND, if the job was deleted;
  // AlreadyExists, reason REQUEST_ID_REUSED, if another call used the id.
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const;
  // Returns nullopt if the dataset does not exist or is not imported yet.
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const;
  // Lists jobs. `page_token` is empty for the first page. Errors: InvalidArgument (field page_token) for a token that
  // this method did not make for the same query; InvalidArgument (field filter) for a text that is not a filter.
  absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token, const JobQuery& query) const;
  // These methods change a job and return it. `request_id`, here and below, identifies a call that may be repeated;
  // empty: the call has no id. A repeated call changes nothing, and returns the job as it is then.
  // Errors: AlreadyExists, reason REQUEST_ID_REUSED, if another call used the id; those of JobService's methods of
  // these names.
  absl::StatusOr<Job> Cancel(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Pause(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Resume(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Retry(const JobId& id, const std::string& request_id = "");
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const std::string& request_id = "");
  absl::Status Delete(const JobId& id, const std::string& request_id = "");
  // Lists the job's checkpoints, newest first. Reads the disk. With `verify`, reads every byte of every checkpoint.
  // Errors: Unavailable if the disk cannot be read.
  absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const;
  // Returns the path of an artifact. Errors: FailedPrecondition (reason ARTIFACT_NOT_READY) if the job has not made
  // it yet.
  absl::StatusOr<std::filesystem::path> ArtifactPath(const JobId& id, Artifact artifact) const;

  // Returns the job's graph cache as it is now, or for an ended job as it was at the end. Before the first step, the
  // result has only the cache's options.
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const;
  // Returns the cache's entries in the order of insertion. They may be a moment old.
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const;
  // Records a command, and calls `done` once. Sets the command's sequence and step itself. `done` is called
  //   for a running job, with the cache after the command took effect at a step boundary
  //   for a queued or paused job, at once, with the cache as recorded (the job resumes at command_step)
  //   for a repeated call, whose `request_id` was answered before, at once, with the cache as it is now
  //   with an error: InvalidArgument; NotFound; ResourceExhausted (reason TOO_MANY_COMMANDS); FailedPrecondition
  //     (reason JOB_ENDED) if the job has ended or ends first; Unavailable (reason SERVER_DRAINING or JOB_WAITS) if the
  //     run stops first. The command is then on record, and takes effect when the job goes on.
  // `done` may be called on any thread, also before this method returns. It must not call back into the manager.
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& request_id,
                         const CommandLog::Done& done);

  // Returns the log of calls that change something other than jobs.
  RequestLog& requests();

  // Returns what each cache policy would cost a job of this spec. Creates nothing, and waits for the plan. With
  // `measure`, measures bytes and times on the device if it is idle. `wanted` returns whether the caller still waits.
  // It is called every few milliseconds, by one thread at a time. Errors: those of Create; Unavailable also once the
  // book drains; Cancelled once `wanted` returns false.
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted);

  // Evaluates a job's weights in one pass over rows of a dataset. Waits for the pass, and stores nothing.
  // `on_progress` receives the number of rows done and the total number (0: not known yet), and returns whether to go
  // on. Errors: Cancelled if `on_progress` returned false; NotFound; InvalidArgument; FailedPrecondition, reason
  // ARTIFACT_NOT_READY, or the reason of a dataset that is not READY; Unavailable once the book drains; if the device
  // is not the CPU, Unavailable also while a job runs.
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress);

  // Trains one rank of a job that another server leads. Waits until the rank ends, and stores nothing. `on_progress`
  // receives 0 steps when the device has taken the rank, and later the steps that the rank has done. It returns
  // whether the leader is still there. Errors: InvalidArgument; FailedPrecondition, reason DATASET_MISSING,
  // DATASET_DIFFERS, or RANK_FAILED for an error of the job itself; Unavailable, reason DEVICE_BUSY, while the device
  // has a job or a rank; Unavailable once the book drains or if another rank has gone.
  absl::Status RunRank(const RankRequest& request, const OnRankProgress& on_progress);

  // Returns the entries that a job of this spec would add to the graph cache of MPS. Creates nothing, and waits for
  // the census. Errors: those of PlanGraphCache; Unavailable on MPS while a job runs.
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                          const std::function<bool()>& wanted);

  // Returns what the device thread is doing now. Waits neither for the store nor for a step.
  DeviceActivity device_activity() const;
  // Waits until the device thread has ended. Call Drain first.
  void Join();

 private:
  struct Parts;

  JobManager(std::unique_ptr<JobStore> store, JobFiles files, const JobManagerOptions& options, data::Catalog& catalog,
             train::Runner& runner, const RunMetrics& metrics);

  std::unique_ptr<Parts> parts_;
};

}  // namespace permafrost::jobs
