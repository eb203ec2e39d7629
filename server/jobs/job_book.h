// The book of jobs. It keeps all jobs in the store, and those that have not ended in memory too. It is the one place
// where a job changes. A change goes to the store first, then to memory, to the gauges and to the job's watchers.
// Threads: all methods are safe anywhere. Changes come one at a time: each holds a turn, also across store writes, so
// that memory and store change together. The lock guards only the memory and is never held while the store works, so
// readers and training steps never wait for the store. LiveRun, which a training step touches, has a lock of its own.
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
  // For a queued job: when it began to wait, and when it may run. Both are times of the book's clock.
  absl::Duration queued_at;
  absl::Duration not_before = -absl::InfiniteDuration();
  std::deque<train::EpochMetrics> unsaved_epochs;  // reported, but not yet in the store
  LiveRun::Entries stored_entries;                 // the graph cache's entries that the run stored last
};

// A job that the device has just taken.
struct StartedJob {
  Job job;  // without epochs
  std::shared_ptr<LiveRun> live;
};

struct BookOptions {
  // How long to wait before retrying a run that an error of the machine ended. The wait doubles with each retry.
  absl::Duration first_retry = absl::Seconds(1);
  // How long to wait before a job that needs other daemons asks them again.
  absl::Duration peers_retry = absl::Seconds(5);
  // If true, a job takes the device from a job of lower priority.
  bool preempt = true;
  // The most bytes kept of a job's log. 0 keeps all.
  int64_t max_log_bytes = 0;
  // The clock for ages and deadlines. Same as JobManagerOptions::now.
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

// Three sources implement it:
//   job_book.cc        what every caller uses: reading, turns, Insert, Delete, Cancel, Drain, logs
//   job_book_verbs.cc  what users ask of a job: Pause, Resume, Requeue, Update
//   job_book_run.cc    what the device thread calls, care for waiting jobs (Attend), and the start (Recover)
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

  // Loads the jobs of the store. Call it once, before any other method. Interrupted jobs are queued again. A job is
  // failed instead if the server died five times while it was at the same place. Directories of jobs that are not on
  // record are quarantined. Errors: FailedPrecondition if the store never held a job but directories hold work of
  // some, unless `quarantine_unknown` is true.
  absl::Status Recover(bool quarantine_unknown);

  const JobFiles& files() const { return files_; }
  // Returns the time by which deadlines and ages are measured.
  absl::Time Now() const { return options_.now(); }
  JobStore& store() const { return *store_; }

  // Calls `listener` on every change of the job, and when it is deleted.
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  // Calls `listener` on each line of the job's log, on the job's end (no line comes after it), and when it is
  // deleted.
  std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) {
    return log_hub_.Subscribe(id.value(), std::move(listener));
  }
  // Counts the subscriptions that have not ended.
  size_t watchers() const { return hub_.subscriptions() + log_hub_.subscriptions(); }
  void Notify(const JobId& id) { hub_.Notify(id.value()); }

  // Returns the job with at most kMostEpochs epochs: the first ones after `after_epoch`. A caller who has the earlier
  // ones gets only new epochs.
  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const;
  // Returns the job with all epochs. They are read in pieces, and the lock is free in between.
  absl::StatusOr<Job> Get(const JobId& id) const ABSL_LOCKS_EXCLUDED(mu_);
  // Lists jobs as JobStore::List does, but with the live progress, device time and error of jobs that have not ended.
  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const;
  // Counts jobs by state. Never waits for a store write.
  JobCounts CountByState() const;
  // Counts the jobs that ended in this process. Never falls.
  int64_t ended() const { return ended_.load(std::memory_order_acquire); }
  // Checks that no job which has not ended uses the dataset. Errors: FailedPrecondition (reason DATASET_IN_USE),
  // naming such a job.
  absl::Status CheckDatasetUnused(const DatasetId& id) const;

  // Treats the dataset of `creating`, a job that is being created, as in use. nullopt: no job is being created.
  void Reserve(std::optional<Job> creating);
  // Puts a new job on record. Sets job.sequence. `asked` is CreateRequest::asked. Errors: Unavailable while draining;
  // the store's.
  absl::Status Insert(Job& job, const std::string& asked);
  // Deletes an ended job, and returns it as it was, without epochs. Returns nullopt if `request` deleted it before.
  // If `ended_at` is given, only a job that ended at that time is deleted. Errors: FailedPrecondition if the job has
  // not ended, or ended at another time.
  absl::StatusOr<std::optional<Job>> Delete(const JobId& id, const RequestKey& request,
                                            std::optional<absl::Time> ended_at);
  absl::StatusOr<Job> Cancel(const JobId& id, const RequestKey& request);
  // JobManager documents these methods. They are in job_book_verbs.cc.
  absl::StatusOr<Job> Pause(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Resume(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const RequestKey& request);
  // Returns a job that a retry would queue again. Returns nullopt if the job is queued or runs already. Errors: those
  // of JobManager::Retry for jobs in other states.
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
  // Moves the best of the queued jobs that may run now to preparing, or to recovering. Returns nullopt if none may
  // run. `wait` is then the time until one may; infinite: until something changes. Errors: the store's; nothing has
  // changed then.
  absl::StatusOr<std::optional<StartedJob>> StartBest(absl::Duration& wait);
  // Moves the job on the device to warming up, or to running. Does nothing if it is in that state already, or is
  // being cancelled. Returns false if the store could not take the change. Then nothing has changed: the run goes on,
  // and calls this again later.
  bool Advance(const JobId& id, JobState state);
  // Stores the progress from the job's LiveRun, its graph cache, and the epochs recorded since the last call. After
  // an error some of them are not stored; a later call stores them. Any thread may call this one.
  absl::Status StoreProgress(const JobId& id);
  // Stores the epochs recorded so far. Takes no turn.
  absl::Status StoreEpochs(const JobId& id) ABSL_LOCKS_EXCLUDED(save_mu_, mu_);
  void RecordEpoch(const JobId& id, const train::EpochMetrics& metrics);
  // Ends the run of the job on the device. Calls `conclude` with the job as it is now, under the lock, so that no
  // cancel comes between. `conclude` sets the job's next state, and may write the job's log. Returns the job as
  // stored. Errors: the store's; nothing has changed then.
  absl::StatusOr<Job> Conclude(const JobId& id, const std::function<void(Job&)>& conclude);
  // Call this if Conclude failed and is not tried again. The record still says that the job is on the device, so the
  // next start resumes it.
  void GiveUpRunning();

  // Makes the changes that come with time alone. Waiting jobs whose limits have passed fail. A job whose wait is over
  // may take the device from another. One thread calls this now and then. Errors of the store are tried again; the
  // first of several in a row is logged.
  void Attend();

  // Waits until no other change is under way, and begins a turn. Waits without limit for a change that makes
  // progress. Gives up if the change under way waits for another process's lock on the database for longer than this
  // thread's Patience or `longest`, whichever is shorter. Errors: Unavailable; Cancelled if nobody wants the change
  // any more.
  absl::StatusOr<Turn> TakeTurn(absl::Duration longest = kLongestWait);
  // Returns a job that has not ended, or nullptr for any other id. Until the turn ends the job stays there, and its
  // state and `live` do not change. Only the holder of the turn appends commands to it.
  ActiveJob* FindActive(const Turn& turn, const JobId& id);
  std::optional<LiveRun::Cache> LiveCache(const JobId& id) const;
  // Opens the job's log. Each line written to it notifies the log's followers. The job's directory must exist.
  absl::StatusOr<std::unique_ptr<telemetry::JobLog>> OpenLog(const JobId& id) const;
  // Reads at most `max_bytes` of the log from `offset`. A negative offset counts back from the present end. Errors:
  // OutOfRange beyond the end.
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;
  // Appends a line to the log of a job that is not running. If the log cannot be opened, the line is counted as a
  // failed one.
  void AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const;

 private:
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);

  void EndTurn();
  // Runs `f`, which uses the store in the caller's turn, without the lock. Takes the lock again afterwards, even if
  // `f` throws.
  template <class F>
  auto Unlocked(F f) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mu_.Unlock();
    const absl::Cleanup lock = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); };
    return f();
  }

  // These are in job_book_run.cc, for Recover. `last_sequence` is the result of JobStore::LastSequence.
  absl::Status QuarantineUnknownDirectories(const std::function<bool(const JobId&)>& on_record, int64_t last_sequence,
                                            bool quarantine_unknown);
  absl::Status RecoverJob(const JobId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverRunning(ActiveJob& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Methods below that wait for the store must be called in a turn.

  // These are in job_book_run.cc.
  // Fails each waiting job that has passed a limit.
  absl::Status FailOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the best of the queued jobs that may run now. Returns nullptr if none may; then one may after `wait`.
  ActiveJob* FindBest(absl::Duration& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks the job on the device to make room if a job of higher priority may run now. Withdraws the request if none
  // may.
  void DecidePreemption() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Returns `ended` with its epochs from the store. Returns it without epochs if the job was deleted meanwhile.
  absl::StatusOr<Job> WithEpochs(Job ended) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the job as it is at this moment, with the first `most` of its epochs after `after_epoch`.
  static Job Snapshot(const ActiveJob& active, int64_t after_epoch, size_t most = std::numeric_limits<size_t>::max());
  static Job WithoutEpochs(const ActiveJob& active);
  // Adds the job to the jobs that have not ended. Stores nothing.
  ActiveJob& TakeUp(Job&& job, std::vector<graphcache::Command> commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the wait of a queued job that waits after an error, or after deaths of the server: it may run now.
  absl::Status EndWait(ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts a call on record that found nothing to do. If the call comes again, it does nothing, whatever has become of
  // the job meanwhile.
  absl::Status Remember(const ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SetPausing(ActiveJob& active, bool pausing, const RequestKey& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the LiveRun that a run of the job begins with.
  absl::StatusOr<std::shared_ptr<LiveRun>> MakeLiveRun(const ActiveJob& active) const;
  // Stores `next`, and then shows it to everyone. A job that has ended leaves active_. The epochs stay those of
  // `active`. `request` is the call that led to the change, and goes on record with it. Changes nothing on an error.
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
  std::atomic<int64_t> ended_{0};  // same as draining_
  // A follower gets the lines of this interval together. One write for each line would take much of a core if a job
  // with short epochs had many followers.
  static constexpr absl::Duration kLogInterval = absl::Milliseconds(500);
  mutable LogPieces log_pieces_{files_};
  // Serves followers of logs. Separate from hub_ because jobs change far more often than logs.
  mutable ChangeHub log_hub_{kLogInterval};
  ChangeHub hub_;  // last, so that no listener runs once a member above is destroyed
};

// Returns a job's graph cache as it is before the first step: it has only its options.
graphcache::Snapshot NoStepYet(const spec::JobSpec& spec);
// Returns FailedPrecondition with reason JOB_ENDED.
absl::Status EndedError(const Job& job);
// Returns Unavailable with reason SERVER_DRAINING.
absl::Status DrainingError();

}  // namespace permafrost::jobs
