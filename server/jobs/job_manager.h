// Accepts jobs, queues them by priority then age, and runs one at a time on the device thread, which it owns.
// Threads: all methods are safe anywhere and never wait for a training step.
// Invariant: a job is in the store before Create answers; every state change is in the store before anyone sees it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/change_hub.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/device_activity.h"
#include "jobs/job.h"
#include "jobs/job_store.h"
#include "jobs/limits.h"
#include "spec/loss.h"
#include "spec/train_options.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "train/checkpoint_files.h"
#include "train/runner.h"

namespace permafrost::jobs {

class RequestLog;

struct CreateRequest {
  JobId id;  // empty: one is made
  std::string request_id;
  // All that the call asked for as its client wrote it, hashed: where it comes again, the same text is the same call,
  // whatever it would mean by now. Empty: `spec` alone tells.
  std::string asked;
  spec::JobSpec spec;
  Labels labels;
  bool validate_only = false;
};

// Refuses what JobManager::Create refuses for the request alone. Errors: InvalidArgument with a violation for each bad
// field.
absl::Status CheckRequest(const CreateRequest& request);
// Refuses a request_id that every call refuses. Errors: InvalidArgument with a violation of it.
absl::Status CheckRequestId(const std::string& request_id);

// The job that a CreateJob made when it came before.
struct CreatedBefore {
  Job job;            // as it is now
  bool same = false;  // by what was asked for; else its spec tells, which is Create's to compare
};

// Selects and orders the jobs of a list.
struct JobQuery {
  std::vector<JobState> states;  // empty: all
  std::string filter;            // job_filter.h; empty: all
};

// Changes of a job; what is not set stays.
struct JobUpdate {
  std::optional<Labels> labels;                                     // in place of all
  std::map<std::string, std::optional<std::string>> label_changes;  // after `labels`; nullopt: the label goes
  std::optional<int32_t> priority;
  std::optional<absl::Duration> max_runtime;  // infinite: no limit
  std::optional<absl::Time> deadline;         // InfiniteFuture: none
  std::string etag;                           // not empty: the job must still have it
};

struct JobPage {
  // With a filter they may be fewer than asked for although more follow.
  std::vector<Job> jobs;
  std::string next_page_token;  // empty: the last page
};

struct LogChunk {
  std::string data;
  int64_t next_offset = 0;
  // The read reached the present end.
  bool at_end = false;
  // Nothing will be written after next_offset: the job was terminal before the read and the read reached the end.
  bool complete = false;
};

enum class Artifact { kBestWeights, kLastWeights, kTestPredictions };
inline constexpr EnumNames<Artifact, 3> kArtifactNames{{{{Artifact::kBestWeights, "best-weights"},
                                                         {Artifact::kLastWeights, "last-weights"},
                                                         {Artifact::kTestPredictions, "test-predictions"}}}};

// A request to JobManager::Evaluate.
struct EvaluationRequest {
  JobId job;
  DatasetId dataset;                         // empty: the job's
  std::optional<train::EvaluatedRows> rows;  // of the job's dataset kTest, else kAll
  spec::JobWeights weights = spec::JobWeights::kBest;
  std::optional<int64_t> checkpoint_step;  // the weights of this checkpoint instead
  std::vector<spec::Metric> metrics;       // empty: the job's
  bool predictions = false;
  bool allow_unknown_categories = false;  // train::EvaluateRequest
};

// The request with what it left open, and what came of it.
struct JobEvaluation {
  DatasetId dataset;
  train::EvaluatedRows rows = train::EvaluatedRows::kTest;
  std::vector<spec::Metric> metrics;
  train::RowsEvaluation result;
};

struct JobManagerOptions {
  std::filesystem::path state_dir;  // permafrost.db and jobs/ID/ live here
  // Start although the database never held a job and jobs/ holds checkpoints or artifacts of some; they are set aside.
  bool quarantine_unknown_jobs = false;
  // Wait before a job runs again that an error of the machine ended, and before files of a deleted job are tried to be
  // removed again; it doubles each time, up to five minutes.
  absl::Duration first_retry = absl::Seconds(1);
  // True: a queued job takes the device from one of lower priority.
  bool preempt = true;
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
  // Told once, on the device thread, that the device is unusable until the process ends (base/device.h): its job
  // goes back to the queue, and the manager drains. It must not block, nor call back.
  std::function<void(const absl::Status&)> on_device_fault = [](const absl::Status&) {};
};

class JobManager {
 public:
  // Interrupted jobs (on the device) are queued again (cancelling ones become cancelled, pausing ones paused). A
  // job is failed instead once the server died five times in a row while it was at the same step: it would take every
  // later server down too. Directories of no job on record are renamed to `.quarantine-*`. Does not start the device
  // thread. All references outlive the manager. Errors: FailedPrecondition where the database never held a job
  // beside directories that hold work.
  static absl::StatusOr<std::unique_ptr<JobManager>> Open(const JobManagerOptions& options, data::Catalog& catalog,
                                                          train::Runner& runner, telemetry::JobMetrics& metrics,
                                                          telemetry::GraphCacheMetrics& cache_metrics);
  virtual ~JobManager() = default;  // drains

  virtual void Start() = 0;

  // Errors: as proto JobService.CreateJob.
  virtual absl::StatusOr<Job> Create(const CreateRequest& request) = 0;
  // By CreateRequest's fields of these names; nullopt: none that is known, or no id. Errors: NotFound, reason
  // JOB_NOT_FOUND, where the job is deleted; AlreadyExists, reason REQUEST_ID_REUSED, of an id that another call had.
  virtual absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                                   const std::string& asked) const = 0;
  virtual absl::StatusOr<Job> Get(const JobId& id) const = 0;
  // nullopt where they are not known (no such dataset, or not imported yet).
  virtual std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const = 0;
  // As Get, with the first kMostEpochs of the epochs after `after_epoch` only: what is new to who has those before.
  virtual absl::StatusOr<Job> GetSince(const JobId& id, int64_t after_epoch) const = 0;
  // `page_token` empty for the first page. InvalidArgument (field page_token) for a token it did not make, or one made
  // for another query; (field filter) for a filter that is none.
  virtual absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token,
                                       const JobQuery& query) const = 0;
  // `request_id`, here and below: of a call that may come again, which is then not done a second time, and answered
  // with the job as it is then; empty: it has none. AlreadyExists, reason REQUEST_ID_REUSED, where it was another
  // call's.
  absl::StatusOr<Job> Cancel(const JobId& id) { return Cancel(id, ""); }
  virtual absl::StatusOr<Job> Cancel(const JobId& id, const std::string& request_id) = 0;
  // These four: errors as of proto JobService's methods of these names.
  absl::StatusOr<Job> Pause(const JobId& id) { return Pause(id, ""); }
  virtual absl::StatusOr<Job> Pause(const JobId& id, const std::string& request_id) = 0;
  absl::StatusOr<Job> Resume(const JobId& id) { return Resume(id, ""); }
  virtual absl::StatusOr<Job> Resume(const JobId& id, const std::string& request_id) = 0;
  absl::StatusOr<Job> Retry(const JobId& id) { return Retry(id, ""); }
  virtual absl::StatusOr<Job> Retry(const JobId& id, const std::string& request_id) = 0;
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update) { return Update(id, update, ""); }
  virtual absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const std::string& request_id) = 0;
  // Newest first. Reads the disk; every byte with `verify`. Unavailable where it cannot.
  virtual absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const = 0;
  absl::Status Delete(const JobId& id) { return Delete(id, ""); }
  virtual absl::Status Delete(const JobId& id, const std::string& request_id) = 0;

  // Calls `listener` on every change of the job, its deletion included.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) = 0;
  // The same on each line of its log, on its end, after which no line comes, and on its deletion.
  virtual std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) = 0;
  // At most `max_bytes` from `offset`; negative: that far before the present end. OutOfRange beyond the end.
  virtual absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const = 0;
  // FailedPrecondition (reason ARTIFACT_NOT_READY) while the job has not made it.
  virtual absl::StatusOr<std::filesystem::path> ArtifactPath(const JobId& id, Artifact artifact) const = 0;
  // FailedPrecondition (reason DATASET_IN_USE) naming the job, if a job that has not ended uses the dataset.
  virtual absl::Status CheckDatasetUnused(const DatasetId& id) const = 0;

  // The job's graph cache as it is now; of an ended job as it was last. Before its first step: its options and nothing
  // else.
  virtual absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const = 0;
  // In the order in which they were inserted; a moment old.
  virtual absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const = 0;
  // Records a command (its sequence and step are set here) and calls `done` once: with the cache after it took effect
  // at a step boundary of the running job; at once, as recorded, for a queued job (command_step: where it goes on); or
  // with an error: InvalidArgument, NotFound, FailedPrecondition (reason JOB_ENDED, also where the job ends first),
  // Unavailable (reason SERVER_DRAINING: on record, takes effect when the job goes on). `done` is called on any thread,
  // possibly before this returns, and must not call back into the manager. `request_id`: as of the verbs; where it
  // comes again, `done` is given the cache as it is then, at once.
  using CommandDone = std::function<void(absl::StatusOr<graphcache::Snapshot>)>;
  virtual void CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& request_id,
                                 CommandDone done) = 0;

  // The log of calls that change something else than jobs.
  virtual RequestLog& requests() = 0;

  // Returns what each cache policy would cost a job of this spec; nothing is created. Waits for it. With `measure`,
  // bytes and times are those of the device if it is idle. `wanted` is asked every few milliseconds, by one thread at a
  // time. Errors: as Create, Unavailable also once the book drains; Cancelled once it is not wanted.
  virtual absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                               const std::function<bool()>& wanted) = 0;

  // One pass of a job's weights over rows of a dataset; waits for it, and leaves nothing behind. `on_progress` hears of
  // rows done and in all (0: not known yet), and returns whether to go on; Cancelled when not. Errors: NotFound;
  // InvalidArgument; FailedPrecondition, reason ARTIFACT_NOT_READY or of a dataset that is not READY; Unavailable once
  // the book drains, and on another device than the CPU while a job runs.
  virtual absl::StatusOr<JobEvaluation> Evaluate(
      const EvaluationRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) = 0;

  // Returns the entries that a job of this spec would add to the graph cache of MPS; nothing is created. Waits for it.
  // Errors: as PlanGraphCache; Unavailable on MPS while a job runs.
  virtual absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const spec::JobSpec& spec,
                                                                  graphcache::TorchRelease release,
                                                                  const std::function<bool()>& wanted) = 0;

  // Tells what the device thread does just now. Waits for no store and no step.
  virtual DeviceActivity device_activity() const { return {}; }
  // Jobs by JobState. Waits for no store.
  virtual JobCounts CountByState() const = 0;
  // Stops taking jobs; the running one checkpoints at its next step boundary and is queued for the next start. Returns
  // at once with that job's id (empty: none). Idempotent.
  virtual JobId Drain() = 0;
  virtual bool draining() const = 0;
  // Waits until the device thread has ended, after Drain.
  virtual void Join() = 0;
};

}  // namespace permafrost::jobs
