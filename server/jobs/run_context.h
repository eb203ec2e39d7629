// Carries news of a running job from the device thread to all other threads, and their requests to the device thread.
// It has three parts: what the device thread is doing, the commands to the job's graph cache, and the run's progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "base/monotonic.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/job.h"
#include "jobs/run_counters.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "telemetry/log.h"
#include "train/runner.h"

namespace permafrost::jobs {

enum class DevicePhase {
  kIdle,
  kTaking,
  kCall,
  kOpening,
  kPreparing,
  kWarmingUp,
  kTraining,
  kEvaluating,
  kCheckpoint,
  kEnding
};
inline constexpr EnumNames<DevicePhase, 10> kDevicePhaseNames{{{{DevicePhase::kIdle, "idle"},
                                                                {DevicePhase::kTaking, "taking a job"},
                                                                {DevicePhase::kCall, "work for a call"},
                                                                {DevicePhase::kOpening, "opening the dataset"},
                                                                {DevicePhase::kPreparing, "preparing the run"},
                                                                {DevicePhase::kWarmingUp, "capturing steps"},
                                                                {DevicePhase::kTraining, "training"},
                                                                {DevicePhase::kEvaluating, "evaluating"},
                                                                {DevicePhase::kCheckpoint, "writing a checkpoint"},
                                                                {DevicePhase::kEnding, "storing the run's end"}}}};

// A snapshot of what the device thread does.
struct DeviceActivity {
  DevicePhase phase = DevicePhase::kIdle;
  JobId job;           // empty: no job is on the device
  int64_t step = 0;    // steps of the job that are done
  uint64_t moves = 0;  // rises with each sign of progress
};

// Shows what the device thread is doing, so that a watchdog sees whether it makes progress.
// Threads: all methods are safe anywhere. The lock is held only for a copy.
class DeviceActivityBoard {
 public:
  // Sets a new phase, and the job to which it belongs. Counts as a sign of progress.
  void Enter(DevicePhase phase, JobId job = {}) {
    Move();
    absl::MutexLock lock(&mu_);
    phase_ = phase;
    if (job_ != job) step_ = 0;
    job_ = std::move(job);
  }
  // Sets a new phase and step for the present job. Cheap enough to call at each step.
  void Enter(DevicePhase phase, int64_t step) {
    Move();
    absl::MutexLock lock(&mu_);
    phase_ = phase;
    step_ = step;
  }
  // Counts a sign of progress in the current phase.
  void Move() { moves_.fetch_add(1, std::memory_order_relaxed); }

  DeviceActivity Read() const {
    absl::MutexLock lock(&mu_);
    return {.phase = phase_, .job = job_, .step = step_, .moves = moves_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> moves_{0};
  mutable absl::Mutex mu_;
  DevicePhase phase_ ABSL_GUARDED_BY(mu_) = DevicePhase::kIdle;
  JobId job_ ABSL_GUARDED_BY(mu_);
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
};

// The graph cache commands of an unfinished job, as they are in the store, and the callers that wait for a command's
// effect.
// Threads: all methods are safe anywhere; the lock is held only for copies.
// Invariant: along the list, sequences rise, and steps never fall. All commands without a step come after all
// commands with one.
class CommandLog {
 public:
  // Called with the outcome of a command; see JobManager::CommandGraphCache.
  using Done = std::function<void(absl::StatusOr<graphcache::Snapshot>)>;

  // `spec` holds the options with which the job began.
  CommandLog(const spec::PolicyOptions& spec, std::vector<graphcache::Command> commands);

  // The state against which a new command is checked. All fields are from one moment.
  struct State {
    spec::PolicyOptions options;  // the options once all commands have taken effect
    int64_t newest = 0;           // sequence of the newest command; 0: none
    int64_t last_step = 0;        // the largest step of any command; 0: no command has a step
  };
  State state() const;
  // Returns the commands without a step, in order.
  std::vector<graphcache::Command> Unstamped() const;
  // Returns the sequence of the newest command; 0: there is none. This is a single atomic load, because every
  // training step calls it.
  int64_t newest() const { return newest_.load(std::memory_order_acquire); }
  // Adds a command. Call it in the order of the sequences. If somebody waits for the command, TakeWaiting or Close
  // returns `done` later; otherwise `done` is nullptr. After Close, drops `done` and returns false.
  bool Append(const graphcache::Command& command, Done done);
  // Returns the commands after `after_sequence` that take effect at `step`: first the commands with this or an
  // earlier step, then the commands without a step.
  std::vector<graphcache::Command> Due(int64_t after_sequence, int64_t step) const;
  // Sets the steps of commands that are already in the log.
  void Stamp(const std::vector<graphcache::Command>& stamped);
  // Returns the callbacks that wait for commands up to `sequence`, in order. Each callback is returned only once.
  std::vector<Done> TakeWaiting(int64_t sequence);
  // Close ends a run, and returns the callbacks that still wait for a command. Open begins the next run.
  std::vector<Done> Close();
  void Open();

 private:
  std::atomic<int64_t> newest_;
  mutable absl::Mutex mu_;
  std::vector<graphcache::Command> commands_ ABSL_GUARDED_BY(mu_);
  spec::PolicyOptions options_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<int64_t, Done>> waiting_ ABSL_GUARDED_BY(mu_);  // by sequence
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// The running job as other threads see it.
// Threads: all methods are safe anywhere.
class LiveRun {
 public:
  using Entries = std::shared_ptr<const std::vector<graphcache::EntryInfo>>;  // never nullptr
  struct Cache {
    graphcache::Snapshot snapshot;
    Entries entries = std::make_shared<const std::vector<graphcache::EntryInfo>>();
  };

  // `cache` is the graph cache as it was at the end of the last run. `trouble` and `device_time` are those of the job
  // so far. `now` is the clock that measures the deadline.
  LiveRun(
      Cache cache, std::shared_ptr<CommandLog> commands, Trouble trouble, absl::Duration device_time,
      const spec::JobLimits& limits, std::function<absl::Time()> now = [] { return absl::Now(); })
      : commands_(std::move(commands)),
        time_before_(device_time),
        now_(std::move(now)),
        cache_(std::move(cache)),
        trouble_(std::move(trouble)),
        limits_(limits) {}

  void RequestCancel() { cancel_.store(true, std::memory_order_release); }
  bool cancel_requested() const { return cancel_.load(std::memory_order_acquire); }
  void RequestPause() { pause_.store(true, std::memory_order_release); }
  // Withdraws the request to pause. The run may have seen it already.
  void WithdrawPause() { pause_.store(false, std::memory_order_release); }
  bool pause_requested() const { return pause_.load(std::memory_order_acquire); }
  // Sets the job of higher priority that waits for the device; empty: none. The run may already have seen the
  // previous value.
  void SetPreempted(const JobId& by) {
    absl::MutexLock lock(&mu_);
    preempted_by_ = by;
    preempted_.store(!by.empty(), std::memory_order_release);
  }
  bool is_preempted() const { return preempted_.load(std::memory_order_acquire); }
  JobId preempted_by() const {
    absl::MutexLock lock(&mu_);
    return preempted_by_;
  }
  // Notes that the run was told to stop, for any reason. The note stays, even if the reason is withdrawn.
  void SetStopSeen() { stop_seen_.store(true, std::memory_order_release); }
  bool stop_seen() const { return stop_seen_.load(std::memory_order_acquire); }

  void SetLimits(const spec::JobLimits& limits) {
    absl::MutexLock lock(&mu_);
    limits_ = limits;
  }
  Limit passed_limit() const {
    absl::MutexLock lock(&mu_);
    // Most jobs have no limits, so this reads no clock for them.
    if (limits_ == spec::JobLimits()) return Limit::kNone;
    // Reading now_ may be a system call, so it is skipped for jobs without a deadline.
    return PassedLimit(limits_, device_time(),
                       limits_.deadline == absl::InfiniteFuture() ? absl::InfinitePast() : now_());
  }
  // Returns the time on the device of all runs of the job, this one included.
  absl::Duration device_time() const { return time_before_ + watch_.Elapsed(); }

  void SetProgress(const train::Progress& progress) {
    absl::MutexLock lock(&mu_);
    progress_ = progress;
  }
  train::Progress progress() const {
    absl::MutexLock lock(&mu_);
    return progress_;
  }

  // Sets the result of the newest try to write a checkpoint or to store the run's end. Ok clears an earlier error.
  void SetTrouble(const absl::Status& error) {
    absl::MutexLock lock(&mu_);
    trouble_ = error.ok() ? Trouble() : Trouble{OneLine(error.message()), trouble_.runs};
  }
  Trouble trouble() const {
    absl::MutexLock lock(&mu_);
    return trouble_;
  }

  // If `entries` is nullptr, the entries reported before stay.
  void SetCache(const graphcache::Snapshot& snapshot, Entries entries) {
    absl::MutexLock lock(&mu_);
    cache_.snapshot = snapshot;
    // The old entries are freed after the lock is released.
    if (entries != nullptr) cache_.entries.swap(entries);
  }
  Cache cache() const {
    absl::MutexLock lock(&mu_);
    return cache_;
  }
  CommandLog& commands() { return *commands_; }

 private:
  std::atomic<bool> cancel_{false}, pause_{false}, preempted_{false}, stop_seen_{false};
  const std::shared_ptr<CommandLog> commands_;
  const absl::Duration time_before_;
  const Stopwatch watch_;
  const std::function<absl::Time()> now_;
  mutable absl::Mutex mu_;  // held only for a copy, so a training step never waits for the store
  train::Progress progress_ ABSL_GUARDED_BY(mu_);
  Cache cache_ ABSL_GUARDED_BY(mu_);
  Trouble trouble_ ABSL_GUARDED_BY(mu_);
  spec::JobLimits limits_ ABSL_GUARDED_BY(mu_);
  JobId preempted_by_ ABSL_GUARDED_BY(mu_);
};

// The callbacks that receive a run's news.
struct RunHooks {
  std::function<void()> notify;  // tells watchers; called at each step
  // Makes another thread store, as soon as possible, LiveRun's progress and cache, and the epochs recorded since the
  // last call.
  std::function<void()> store_soon;
  // Same as store_soon, but stores at once, on the calling thread.
  std::function<absl::Status()> store_progress;
  // Stores the epochs recorded so far. After Ok, they are on disk.
  std::function<absl::Status()> store_epochs;
  std::function<void(const train::EpochMetrics&)> record_epoch;  // publishes an epoch
  // Stores commands, and replaces those with equal sequences. After Ok, they are on disk.
  std::function<absl::Status(const std::vector<graphcache::Command>&)> store_commands;
  std::function<void(int64_t)> mark_step;  // cheap; called at each step
  // Moves the job to WARMING_UP or RUNNING. Returns false if the move could not be stored.
  std::function<bool(JobState)> advance;
  // Returns the time since some fixed moment before the run, by a monotonic clock.
  std::function<absl::Duration()> now;
  // Receives every sign of progress; may be nullptr.
  DeviceActivityBoard* activity = nullptr;
};

struct RunMetrics {
  telemetry::JobMetrics& job;
  telemetry::GraphCacheMetrics& graph_cache;
};

// The RunContext of a job's run. It publishes progress, epochs and the graph cache in memory at once. It stores them
// at most once a second, and at each checkpoint. While another process has locked the store, no step waits for it:
// progress is stored later, a command takes effect later, and a checkpoint is written later. Only the last checkpoint
// of a run waits for the lock.
// Threads: the device thread only. Borrows everything.
class JobRunContext : public train::RunContext {
 public:
  JobRunContext(const spec::TrainOptions& options, bool resumed, const std::atomic<bool>& draining, LiveRun& live,
                telemetry::JobLog& log, const RunMetrics& metrics, RunHooks hooks);

  train::StopRequest stop_requested() const override;
  void OnProgress(const train::Progress& progress) override;
  void OnGraphCache(const graphcache::Snapshot& snapshot, LiveRun::Entries entries) override;
  std::vector<graphcache::Command> TakeCacheCommands(int64_t after_sequence, int64_t step) override;
  void OnEpoch(const train::EpochMetrics& metrics) override;
  absl::Status StoreEpochs(bool is_last) override;
  void OnCheckpoint(int64_t step, absl::Duration duration) override;
  void OnCheckpointFailed(const absl::Status& error) override;
  void Log(train::LogLevel level, std::string_view line) override;

 private:
  // Calls store_soon, but not within a second of the last call.
  void StoreNowAndThen();
  void Move() const;
  void Enter(DevicePhase phase) const;
  void AdvanceTo(JobState state);

  const spec::TrainOptions& options_;
  const std::atomic<bool>& draining_;
  LiveRun& live_;
  telemetry::JobLog& log_;
  const RunMetrics metrics_;
  const RunHooks hooks_;
  RunCounters counters_;
  CacheCounters cache_counters_;
  int64_t step_ = 0;  // step of the newest progress
  absl::Duration last_store_;
  JobState state_ = JobState::kPreparing;  // the last stored state of this run
  // After a failure of the store, the next state is not stored before this time.
  absl::Duration next_advance_ = -absl::InfiniteDuration();
  // After a failure of the store, no command gets its step before this time.
  absl::Duration next_stamp_ = -absl::InfiniteDuration();
};

// Stores the reports of a run on a separate thread, so that no step waits for the disk.
// Threads: the device thread makes and destroys it; StoreSoon is safe anywhere.
class RunWriter {
 public:
  // Starts the thread. It calls `store` with a Patience of zero, so `store` never waits for another process's lock.
  // If `store` fails, it is called again a second later. `what` names the run in the log. The log gets only the first
  // of several errors in a row. Errors: Unavailable if the system cannot start a thread.
  static absl::StatusOr<std::unique_ptr<RunWriter>> Start(std::string what, std::function<absl::Status()> store);
  // Waits for a running call of `store` to end. Drops requests that have not led to a call yet.
  ~RunWriter();

  // Asks the thread to call `store`. Never waits.
  void StoreSoon() { wake_.Set(); }

 private:
  RunWriter(std::string what, std::function<absl::Status()> store) : what_(std::move(what)), store_(std::move(store)) {}
  void Loop();

  const std::string what_;
  const std::function<absl::Status()> store_;
  Event wake_, stop_;
  std::thread thread_;
};

}  // namespace permafrost::jobs
