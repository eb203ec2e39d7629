// Jobs on record: those that have not ended in memory, all of them in the store. The one place where a job changes:
// first in the store, then in memory, in the gauges and for its watchers.
// Threads: all methods are safe anywhere. Changes come one at a time, each in its turn, which is held across store
// writes, so that memory and store change together. The lock guards the memory alone and is never held while the store
// works: readers and training steps wait for no store. LiveRun, which a training step touches, has a lock of its own.
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
  Job job;                               // as stored, with its epochs
  std::shared_ptr<CommandLog> commands;  // never nullptr
  std::shared_ptr<LiveRun> live;         // while it is on the device
  // For a queued job, by the book's clock: since when it waits, and when it may run.
  absl::Duration queued_at;
  absl::Duration not_before = -absl::InfiniteDuration();
  std::deque<train::EpochMetrics> unsaved_epochs;  // reported, and not yet in the store
  LiveRun::Entries stored_entries;                 // of the graph cache: those that the run stored last
};

// A job that the device has just taken.
struct StartedJob {
  Job job;  // without epochs
  std::shared_ptr<LiveRun> live;
};

struct BookOptions {
  // Wait before a run that an error of the machine ended is tried again; it doubles each time.
  absl::Duration first_retry = absl::Seconds(1);
  // Wait before a job that needs other daemons asks them again.
  absl::Duration peers_retry = absl::Seconds(5);
  // True: a job takes the device from one of lower priority.
  bool preempt = true;
  // Most bytes kept of a job's log; 0: all.
  int64_t max_log_bytes = 0;
  // As JobManagerOptions::now.
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

// Its sources: job_book.cc has what every caller uses (reading, turns, Insert, Delete, Cancel, Drain, logs),
// job_book_verbs.cc what users ask of a job (Pause, Resume, Requeue, Update), and job_book_run.cc what the device
// thread calls, the care for waiting jobs (Attend) and the start (Recover).
class JobBook {
 public:
  // The right to change jobs, until it is destroyed.
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

  // Takes up what the store holds; called once, before any other method. Interrupted jobs are queued again, or failed
  // where the server died five times at one place. Directories of no job on record are set aside.
  // FailedPrecondition where the store never held a job and directories hold work of some, unless `quarantine_unknown`.
  absl::Status Recover(bool quarantine_unknown);

  const JobFiles& files() const { return files_; }
  // Tells the time by which deadlines and ages are measured.
  absl::Time Now() const { return options_.now(); }
  JobStore& store() const { return *store_; }

  // Calls `listener` on every change of the job, its deletion included.
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  // The same on each line of its log, on its end, after which no line comes, and on its deletion.
  std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) {
    return log_hub_.Subscribe(id.value(), std::move(listener));
  }
  // Counts the subscriptions that have not ended.
  size_t watchers() const { return hub_.subscriptions() + log_hub_.subscriptions(); }
  void Notify(const JobId& id) { hub_.Notify(id.value()); }

  // Returns the job with its first kMostEpochs epochs after `after_epoch`, which are new to a caller who has the
  // earlier ones.
  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const;
  // Returns the job with all epochs. The lock is free between pieces of them.
  absl::StatusOr<Job> Get(const JobId& id) const ABSL_LOCKS_EXCLUDED(mu_);
  // As JobStore::List, with live progress.
  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const;
  // Jobs by JobState. Waits for no store write, as does what the metrics show.
  JobCounts CountByState() const;
  // Jobs that this process brought to an end; rises.
  int64_t ended() const { return ended_.load(std::memory_order_acquire); }
  // FailedPrecondition (reason DATASET_IN_USE) naming the job, if a job that has not ended uses the dataset.
  absl::Status CheckDatasetUnused(const DatasetId& id) const;

  // The job that is created just now uses its dataset already; nullopt: none is.
  void Reserve(std::optional<Job> creating);
  // Unavailable while draining.
  absl::Status Insert(Job& job, const std::string& asked);
  // The job as it was, without epochs. FailedPrecondition while it has not ended.
  // nullopt: `request` did so before.
  absl::StatusOr<std::optional<Job>> Delete(const JobId& id, const RequestKey& request,
                                            std::optional<absl::Time> ended_at);
  absl::StatusOr<Job> Cancel(const JobId& id, const RequestKey& request);
  // JobManager says what these do; they stand in job_book_verbs.cc.
  absl::StatusOr<Job> Pause(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Resume(const JobId& id, const RequestKey& request);
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const RequestKey& request);
  // A job that a retry would queue again; nullopt: it is queued or runs already. Errors: as JobManager::Retry's for
  // jobs in other states.
  absl::StatusOr<std::optional<Job>> FindRetriable(const JobId& id, const RequestKey& request);
  // Queues a retriable job.
  absl::StatusOr<Job> Requeue(const JobId& id, const RequestKey& request);

  // No job is taken or started from now on; the running one checkpoints at its next step boundary and is queued for the
  // next start. Returns at once with that job's id (empty: none). Idempotent.
  JobId Drain();
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  const std::atomic<bool>& drain_flag() const { return draining_; }

  // The device thread alone calls the methods that follow.

  // Set by whatever may let a job run sooner than was known, and by Drain.
  Event& changed() { return changed_; }
  // Moves the best of the queued jobs that may run now to preparing, or recovering. nullopt: none may; `wait` is then
  // how long it takes until one may (infinite: until something changes). Errors of the store: nothing has changed.
  absl::StatusOr<std::optional<StartedJob>> StartBest(absl::Duration& wait);
  // The job on the device has come to warming up, or to a step. Nothing changes if it is there already, or is being
  // cancelled. False: the store could not take it, and nothing has changed; the run goes on, and tells it again later.
  bool Advance(const JobId& id, JobState state);
  // Stores the progress that the job's LiveRun tells, with the graph cache and the epochs recorded since. On an error
  // some of it is not stored, and a later call brings it up to date. Safe beside the device thread's own methods.
  absl::Status StoreProgress(const JobId& id);
  // The epochs recorded so far are in the store when Ok. Takes no turn.
  absl::Status StoreEpochs(const JobId& id) ABSL_LOCKS_EXCLUDED(save_mu_, mu_);
  void RecordEpoch(const JobId& id, const train::EpochMetrics& metrics);
  // Moves the job on the device to where `conclude` leads, which is called under the lock with the job as it is now and
  // may write its log: no cancel comes between. Returns the job as it is stored. An error of the store: nothing has
  // changed.
  absl::StatusOr<Job> Conclude(const JobId& id, const std::function<void(Job&)>& conclude);
  // Conclude is not tried again: the job stays on the device on record, and the next start resumes it.
  void GiveUpRunning();

  // Makes the changes that time alone brings: waiting jobs whose limits have passed fail, and a job whose wait is over
  // may take the device from another. Called now and then, by one thread; errors of the store are logged once in a row
  // and tried again.
  void Attend();

  // Waits until no other change is under way. While the one that is waits for a lock of another process on the
  // database, at most for this thread's Patience, or for `longest` without one. Errors: Unavailable; Cancelled where
  // nobody wants the change any more.
  absl::StatusOr<Turn> TakeTurn(absl::Duration longest = kLongestWait);
  // A job that has not ended, nullptr for any other. Until the turn ends it is there, its state and `live` do not
  // change, and its commands belong to the caller.
  ActiveJob* FindActive(const Turn& turn, const JobId& id);
  std::optional<LiveRun::Cache> LiveCache(const JobId& id) const;
  // The job's directory must be there.
  // Notifies followers of the log of each line.
  absl::StatusOr<std::unique_ptr<telemetry::JobLog>> OpenLog(const JobId& id) const;
  // At most `max_bytes` from `offset`; negative: that far before the present end. OutOfRange beyond the end.
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;
  // Appends a line to the log of a job that is not running. A log that cannot be opened counts as a line that could not
  // be written.
  void AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const;

 private:
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);

  void EndTurn();
  // Runs `f`, which works in the store in the caller's turn, without the lock. The lock is held again afterwards, even
  // where `f` throws.
  template <class F>
  auto Unlocked(F f) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mu_.Unlock();
    const absl::Cleanup lock = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); };
    return f();
  }

  // job_book_run.cc, for Recover
  // `last_sequence`: as JobStore::LastSequence.
  absl::Status QuarantineUnknownDirectories(const std::function<bool(const JobId&)>& on_record, int64_t last_sequence,
                                            bool quarantine_unknown);
  absl::Status RecoverJob(const JobId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverRunning(ActiveJob& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // All that follows and waits for the store is called in a turn.

  // job_book_run.cc
  // Fails each waiting job that is beyond a limit.
  absl::Status FailOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The best of the queued jobs that may run now; nullptr: none may, and one may after `wait`.
  ActiveJob* FindBest(absl::Duration& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks the job on the device to make room, if one of higher priority may run now; takes that back where none may.
  void DecidePreemption() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // `ended`, which has no epochs yet, with those on record. Without them where it is deleted meanwhile.
  absl::StatusOr<Job> WithEpochs(Job ended) const ABSL_LOCKS_EXCLUDED(mu_);
  // The job as it is this moment, with its epochs after `after_epoch`, the first `most` of them.
  static Job Snapshot(const ActiveJob& active, int64_t after_epoch, size_t most = std::numeric_limits<size_t>::max());
  static Job WithoutEpochs(const ActiveJob& active);
  // The job becomes one that has not ended; nothing is stored.
  ActiveJob& TakeUp(Job&& job, std::vector<graphcache::Command> commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A queued job that waits after an error, or after deaths of the server, may run now.
  absl::Status EndWait(ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A call that finds nothing to do is on record all the same: it does nothing when it comes again, whatever became of
  // the job meanwhile.
  absl::Status Remember(const ActiveJob& active, const RequestKey& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SetPausing(ActiveJob& active, bool pausing, const RequestKey& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the state that a run of the job begins with.
  absl::StatusOr<std::shared_ptr<LiveRun>> MakeLiveRun(const ActiveJob& active) const;
  // Stores `next`, then makes it what everyone sees; a job that ended leaves active_. Its epochs stay those of
  // `active`. Nothing changes on an error. `request`: that led to it, on record with it.
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
  // Held while epochs go to the store, so that each goes once.
  absl::Mutex save_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;
  std::map<JobId, ActiveJob> active_ ABSL_GUARDED_BY(mu_);
  std::optional<Job> creating_ ABSL_GUARDED_BY(mu_);
  // Written under mu_; read without it.
  std::array<std::atomic<int64_t>, kJobStateNames.rows.size()> counts_ = {};
  int64_t unreadable_ ABSL_GUARDED_BY(mu_) = 0;
  JobId running_ ABSL_GUARDED_BY(mu_);  // on the device; empty: none
  bool overdue_told_ ABSL_GUARDED_BY(mu_) = false;
  // Written under mu_; read without it at each training step.
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> ended_{0};  // the same
  // Lines of so long go to each follower together: many streams of a job with short epochs would take much of a core
  // with a write for each.
  static constexpr absl::Duration kLogInterval = absl::Milliseconds(500);
  mutable LogPieces log_pieces_{files_};
  // For followers of the jobs' logs: apart from hub_, since jobs change far more often.
  mutable ChangeHub log_hub_{kLogInterval};
  ChangeHub hub_;  // last: no listener runs once anything above is gone
};

// A job's graph cache before its first step: its options and nothing else.
graphcache::Snapshot NoStepYet(const spec::JobSpec& spec);
// FailedPrecondition, reason JOB_ENDED.
absl::Status EndedError(const Job& job);
// Unavailable, reason SERVER_DRAINING.
absl::Status DrainingError();

}  // namespace permafrost::jobs
