// The book of jobs. It keeps all jobs in the store, and unfinished jobs also in memory. Only the book changes a job.
// A change goes to the store first, then to memory, to the gauges and to the job's watchers.
// Threads: all methods are safe anywhere. Changes are made one at a time. Each change holds a turn, also during its
// store writes, so that memory and store change together. The lock guards only the memory. It is not held during
// store calls, so readers and training steps never wait for the store. LiveRun, which a training step touches, has a
// lock of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/change_hub.h"
#include "base/monotonic.h"
#include "jobs/job_files.h"
#include "jobs/job_requests.h"
#include "jobs/job_store.h"
#include "jobs/run_context.h"
#include "telemetry/job_metrics.h"
#include "telemetry/log.h"

namespace permafrost::jobs {

// A job that has not ended.
struct ActiveJob {
  Job job;                               // as stored, with epochs
  std::shared_ptr<CommandLog> commands;  // never nullptr
  std::shared_ptr<LiveRun> live;         // set while the job is on the device
  // The time when a queued job began to wait. Both this and not_before are times of the book's clock.
  absl::Duration queued_at;
  // A queued job does not run before this time.
  absl::Duration not_before = -absl::InfiniteDuration();
  std::deque<train::EpochMetrics> unsaved_epochs;  // reported, but not yet in the store
  LiveRun::Entries stored_entries;                 // the entries of the graph cache that the run stored last
};

// A job that the device has just taken.
struct StartedJob {
  Job job;  // without epochs
  std::shared_ptr<LiveRun> live;
};

struct BookOptions {
  // If an error of the machine ended a run, the wait before the run is retried. It doubles with each retry.
  absl::Duration first_retry = absl::Seconds(1);
  // If a job found too few other daemons for its ranks, the wait before the job asks again.
  absl::Duration peers_retry = absl::Seconds(5);
  // If true, a job takes the device from a job of lower priority.
  bool preempt = true;
  // The most bytes kept of a job's log. 0 keeps all.
  int64_t max_log_bytes = 0;
  // The clock for ages and deadlines. Same as JobManagerOptions::now.
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

// Three sources implement it:
//   job_book.cc        methods for every caller: reading, turns, Insert, Delete, Cancel, Drain, logs
//   job_book_verbs.cc  changes that users request: Pause, Resume, Requeue, Update
//   job_book_run.cc    methods for the device thread, care for waiting jobs (Attend), and the start (Recover)
class JobBook {
 public:
  // The right to change jobs. It ends with End() or when the Turn is destroyed.
  class Turn {
   public:
    Turn(Turn&& from) noexcept : book_(std::exchange(from.book_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() { End(); }
    void End() {
      if (JobBook* const book = std::exchange(book_, nullptr)) book->EndTurn();
    }

   private:
    friend class JobBook;
    explicit Turn(JobBook& book) : book_(&book) {}
    JobBook* book_;
  };

  JobBook(std::unique_ptr<JobStore> store, JobFiles files, telemetry::JobMetrics& metrics, const BookOptions& options);

  // Loads the jobs of the store. Call it once, before any other method. Interrupted jobs are queued again. But if the
  // server died five times while the job was at the same place, the job fails. Directories of jobs that are not on
  // record are quarantined. Errors: FailedPrecondition if the store never held a job but directories hold work of
  // jobs, unless `quarantine_unknown` is true.
  absl::Status Recover(bool quarantine_unknown);

  const JobFiles& files() const { return files_; }
  // Returns the present time of the clock that measures deadlines and ages.
  absl::Time Now() const { return options_.now(); }
  JobStore& store() const { return *store_; }

  // Calls `listener` on every change of the job, and on its deletion.
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  // Calls `listener` on each line of the job's log, on the job's end, and on the job's deletion. After the job's end,
  // no line follows.
  std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) {
    return log_hub_.Subscribe(id.value(), std::move(listener));
  }
  // Returns the number of subscriptions that have not ended.
  size_t watchers() const { return hub_.subscriptions() + log_hub_.subscriptions(); }
  void Notify(const JobId& id) { hub_.Notify(id.value()); }

  // Returns the job with at most kMostEpochs epochs: the first ones after `after_epoch`. So a caller who already has
  // the earlier epochs gets only new ones.
  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const;
  // Returns the job with all epochs. The epochs are read in pieces, and the lock is released in between.
  absl::StatusOr<Job> Get(const JobId& id) const ABSL_LOCKS_EXCLUDED(mu_);
  // Lists jobs as JobStore::List does, but with the live progress, device time and error of jobs that have not ended.
  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const;
  // Counts jobs by state. Never waits for a store write.
  JobCounts CountByState() const;
  // Returns the number of jobs that have ended in this process. The number never falls.
  int64_t ended() const { return ended_.load(std::memory_order_acquire); }
  // Checks that no unfinished job uses the dataset. Errors: FailedPrecondition (reason DATASET_IN_USE), naming one
  // such job.
  absl::Status CheckDatasetUnused(const DatasetId& id) const;

  // Marks the dataset of `creating` as in use. `creating` is a job that is being created or queued again; nullopt:
  // there is no such job.
  void Reserve(std::optional<Job> creating);
  // Puts a new job on record. Sets job.sequence. `asked` is CreateRequest::asked. Errors: Unavailable while draining;
  // the store's.
  absl::Status Insert(Job& job, const std::string& asked);
  // Deletes an ended job, and returns the deleted job without epochs. Returns nullopt if `request` deleted the job
  // before. If `ended_at` is given, only a job that ended at that time is deleted. Errors: FailedPrecondition if the
  // job has not ended, or ended at another time.
  absl::StatusOr<std::optional<Job>> Delete(const JobId& id, const RequestKey& request,
                                            std::optional<absl::Time> ended_at);
  absl::StatusOr<Job> Cancel(const JobId& id, const RequestKey& request);
  // JobManager documents these methods. They are defined in job_book_verbs.cc.
  absl::StatusOr<Job> Pause(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Resume(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const RequestKey& request);
  // Returns the job if a retry would queue it again, and nullopt if it is queued or runs already. Errors: those of
  // JobManager::Retry for a job in any other state.
  absl::StatusOr<std::optional<Job>> FindRetriable(const JobId& id, const RequestKey& request);
  // Queues a job that FindRetriable returned.
  absl::StatusOr<Job> Requeue(const JobId& id, const RequestKey& request);

  // Begins the drain. From now on no job is accepted or started. The running job writes a checkpoint at its next step
  // boundary and is queued for the next start. Returns that job's id at once; empty: no job runs. Idempotent.
  JobId Drain();
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  const std::atomic<bool>& drain_flag() const { return draining_; }

  // Only the device thread calls the methods that follow.

  // This event is set by Drain, and by every change that may let a job run sooner than expected.
  Event& changed() { return changed_; }
  // Moves the best of the queued jobs that may run now to preparing or recovering. If no job may run, returns nullopt
  // and sets `wait` to the time until a job may run. An infinite `wait` means until something changes. Errors: those
  // of the store; after an error, nothing has changed.
  absl::StatusOr<std::optional<StartedJob>> StartBest(absl::Duration& wait);
  // Moves the job on the device to warming up, or to running. Does nothing if the job is already in that state or is
  // being cancelled. If the store cannot store the change, changes nothing and returns false. The run goes on, and
  // calls this again later.
  bool Advance(const JobId& id, JobState state);
  // Stores the progress and the graph cache from the job's LiveRun, and the epochs recorded since the last call.
  // After an error, some of these are not stored yet; a later call stores them. Any thread may call this method.
  absl::Status StoreProgress(const JobId& id);
  // Stores the epochs recorded so far. Needs no turn.
  absl::Status StoreEpochs(const JobId& id) ABSL_LOCKS_EXCLUDED(save_mu_, mu_);
  void RecordEpoch(const JobId& id, const train::EpochMetrics& metrics);
  // Ends the run of the job on the device. Calls `conclude` with the present job, under the lock, so that no cancel
  // can intervene. `conclude` sets the job's next state, and may write the job's log. Returns the job as stored.
  // Errors: those of the store; after an error, nothing has changed.
  absl::StatusOr<Job> Conclude(const JobId& id, const std::function<void(Job&)>& conclude);
  // Call this if Conclude failed and is not tried again. The record still says that the job is on the device, so the
  // next start resumes the job.
  void GiveUpRunning();

  // Makes the changes that depend only on time. Fails waiting jobs whose limits have passed. Lets a job whose wait is
  // over take the device from another job. One thread calls this now and then. After an error of the store, the next
  // call tries again; the first of several errors in a row is logged.
  void Attend();

  // Waits until no other change is under way, and begins a turn. While the other change makes progress, waits without
  // limit. While the other change waits for another process's lock on the database, waits at most for this thread's
  // Patience or `longest`, whichever is shorter. Errors: Unavailable if the change still waits after that time;
  // Cancelled if nobody wants this thread's change any more.
  absl::StatusOr<Turn> TakeTurn(absl::Duration longest = kLongestWait);
  // Returns the unfinished job with this id, or nullptr if there is none. Until the turn ends, the pointer stays
  // valid, and the job's state and `live` do not change. Only the holder of the turn appends commands to the job's
  // CommandLog.
  ActiveJob* FindActive(const Turn& turn, const JobId& id);
  std::optional<LiveRun::Cache> LiveCache(const JobId& id) const;
  // Opens the job's log for writing. Each line written to the log notifies its followers. The job's directory must
  // exist.
  absl::StatusOr<std::unique_ptr<telemetry::JobLog>> OpenLog(const JobId& id) const;
  // Reads at most `max_bytes` of the log from `offset`. A negative offset counts back from the present end. Errors:
  // OutOfRange beyond the end.
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;
  // Appends a line to the log of a job that is not running. If the log cannot be opened, the line counts as failed.
  void AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const;

 private:
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);

  void EndTurn();
  // Releases the lock, runs `f`, and takes the lock again, even if `f` throws. `f` uses the store in the caller's
  // turn.
  template <class F>
  auto Unlocked(F f) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mu_.Unlock();
    const absl::Cleanup lock = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); };
    return f();
  }

  // These methods are defined in job_book_run.cc, for Recover. `last_sequence` is the result of
  // JobStore::LastSequence.
  absl::Status QuarantineUnknownDirectories(const std::function<bool(const JobId&)>& on_record, int64_t last_sequence,
                                            bool quarantine_unknown);
  absl::Status RecoverJob(const JobId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverRunning(ActiveJob& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Only a thread that holds a turn may call those of the methods below that wait for the store.

  // These methods are defined in job_book_run.cc. FailOverdue fails each waiting job that has passed a limit.
  absl::Status FailOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the best of the queued jobs that may run now. If none may run, returns nullptr and sets `wait` to the
  // time until one may.
  ActiveJob* FindBest(absl::Duration& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If a job of higher priority may run now, asks the job on the device to make room. Otherwise withdraws that
  // request.
  void DecidePreemption() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Adds to `ended` its epochs from the store, and returns it. If the job was deleted meanwhile, returns it without
  // epochs.
  absl::StatusOr<Job> WithEpochs(Job ended) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the job as it is now, with its first `most` epochs after `after_epoch`.
  static Job Snapshot(const ActiveJob& active, int64_t after_epoch, size_t most = std::numeric_limits<size_t>::max());
  static Job WithoutEpochs(const ActiveJob& active);
  // Adds the job to the jobs that have not ended. Stores nothing.
  ActiveJob& TakeUp(Job&& job, std::vector<graphcache::Command> commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the wait of a queued job that waits after an error or after deaths of the server, so that it may run now.
  absl::Status EndWait(ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records a call that found nothing to do. If the call is repeated, it again does nothing, even if the job has
  // changed meanwhile.
  absl::Status Remember(const ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SetPausing(ActiveJob& active, bool pausing, const RequestKey& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the LiveRun with which a run of the job begins.
  absl::StatusOr<std::shared_ptr<LiveRun>> MakeLiveRun(const ActiveJob& active) const;
  // Stores `next`, and then publishes it. If the job has ended, removes it from active_. Keeps the epochs of
  // `active`. Records `request`, the call that led to the change, together with the change. After an error, nothing
  // has changed.
  absl::Status Commit(ActiveJob& active, Job next, const RequestKey& request = {}) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SaveGraphCache(ActiveJob& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountJob(JobState state, int64_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<JobStore> store_;
  const JobFiles files_;
  telemetry::JobMetrics& metrics_;
  const BookOptions options_;
  const Stopwatch clock_;
  Event changed_;

  std::atomic<bool> turn_taken_{false};
  Event turn_ended_;
  // Held while epochs are written to the store, so that each is written once.
  absl::Mutex save_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;
  std::map<JobId, ActiveJob> active_ ABSL_GUARDED_BY(mu_);
  std::optional<Job> creating_ ABSL_GUARDED_BY(mu_);
  // Written under mu_; read without it.
  std::array<std::atomic<int64_t>, kJobStateNames.rows.size()> counts_ = {};
  int64_t unreadable_ ABSL_GUARDED_BY(mu_) = 0;
  JobId running_ ABSL_GUARDED_BY(mu_);  // the job on the device; empty: none
  bool overdue_told_ ABSL_GUARDED_BY(mu_) = false;
  // Written under mu_; read without it at each training step.
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> ended_{0};  // written under mu_; read without it
  // A follower gets all lines of one interval at once. If a job with short epochs has many followers, a write for
  // each line would take much of a core.
  static constexpr absl::Duration kLogInterval = absl::Milliseconds(500);
  mutable LogPieces log_pieces_{files_};
  // Serves followers of logs. Separate from hub_ because jobs change far more often than logs.
  mutable ChangeHub log_hub_{kLogInterval};
  ChangeHub hub_;  // last, so that no listener runs once a member above is destroyed
};

// Returns the graph cache that a job has before its first step: only the cache's options are set.
graphcache::Snapshot NoStepYet(const spec::JobSpec& spec);
// Returns FailedPrecondition with reason JOB_ENDED.
absl::Status EndedError(const Job& job);
// Returns Unavailable with reason SERVER_DRAINING.
absl::Status DrainingError();

}  // namespace permafrost::jobs
