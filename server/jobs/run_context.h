// Carries news and requests of a running job between the device thread and everyone else: what the thread does, the
// commands to the job's graph cache, and the run's progress.
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

// A snapshot.
struct DeviceActivity {
  DevicePhase phase = DevicePhase::kIdle;
  JobId job;           // empty: none is on the device
  int64_t step = 0;    // of the job, done
  uint64_t moves = 0;  // rises with every sign of progress
};

// Tells what the device thread does just now, so that a watchdog sees whether it gets on.
// Threads: all methods are safe anywhere. The lock is held for a copy only.
class DeviceActivityBoard {
 public:
  // The thread does something else now, or the same for another job: a sign of progress.
  void Enter(DevicePhase phase, JobId job = {}) {
    Move();
    absl::MutexLock lock(&mu_);
    phase_ = phase;
    if (job_ != job) step_ = 0;
    job_ = std::move(job);
  }
  // Does what Enter does, for the same job. It is cheap enough for each step.
  void Enter(DevicePhase phase, int64_t step) {
    Move();
    absl::MutexLock lock(&mu_);
    phase_ = phase;
    step_ = step;
  }
  // It got on with what it does.
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

// The graph cache commands of a job that has not ended, as the store has them, and who waits for their effect.
// Threads: all methods are safe anywhere; the lock is held for copies only.
// Invariant: sequences rise, and so do steps; a command without a step has none with a step after it.
class CommandLog {
 public:
  // Told what became of a command: JobManager::CommandGraphCache.
  using Done = std::function<void(absl::StatusOr<graphcache::Snapshot>)>;

  // `spec`: the options that the job began with.
  CommandLog(const spec::PolicyOptions& spec, std::vector<graphcache::Command> commands);

  // A new command is checked against this state and put after it. All fields are of one moment.
  struct State {
    spec::PolicyOptions options;  // once all commands have taken effect
    int64_t newest = 0;           // its sequence; 0: there are none
    int64_t last_step = 0;        // the newest that a command has; 0: none has
  };
  State state() const;
  // Returns the commands without a step, in order.
  std::vector<graphcache::Command> Unstamped() const;
  // Sequence of the newest command; 0: there is none. One atomic load: it is asked at every training step.
  int64_t newest() const { return newest_.load(std::memory_order_acquire); }
  // Called in the order of their sequences. TakeWaiting returns `done` (nullptr: nobody waits). False after Close,
  // which drops `done`.
  bool Append(const graphcache::Command& command, Done done);
  // Returns the commands after `after_sequence` that take effect at `step`: first those with that step or an earlier
  // one, then those without one.
  std::vector<graphcache::Command> Due(int64_t after_sequence, int64_t step) const;
  // Gives commands of the log their step.
  void Stamp(const std::vector<graphcache::Command>& stamped);
  // Returns the callers that wait for commands up to `sequence`, in order; each once.
  std::vector<Done> TakeWaiting(int64_t sequence);
  // The run is over, or the next one begins: whoever still waits.
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

// The running job as others see it.
// Threads: all methods are safe anywhere.
class LiveRun {
 public:
  using Entries = std::shared_ptr<const std::vector<graphcache::EntryInfo>>;  // never nullptr
  struct Cache {
    graphcache::Snapshot snapshot;
    Entries entries = std::make_shared<const std::vector<graphcache::EntryInfo>>();
  };

  // `cache`: as it was last, where the job ran before. `trouble`, `device_time`: of the job so far. `now`: what its
  // deadline is measured by.
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
  // The run may have seen the request already.
  void WithdrawPause() { pause_.store(false, std::memory_order_release); }
  bool pause_requested() const { return pause_.load(std::memory_order_acquire); }
  // The job of higher priority that waits for the device; empty: none. The run may have seen the one before already.
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
  // The run was told to stop, for whatever reason: what it was told stays so, though the reason may be withdrawn.
  void SetStopSeen() { stop_seen_.store(true, std::memory_order_release); }
  bool stop_seen() const { return stop_seen_.load(std::memory_order_acquire); }

  void SetLimits(const spec::JobLimits& limits) {
    absl::MutexLock lock(&mu_);
    limits_ = limits;
  }
  Limit passed_limit() const {
    absl::MutexLock lock(&mu_);
    // Most jobs have no limits: then no clock is read.
    if (limits_ == spec::JobLimits()) return Limit::kNone;
    // Reading the clock may be a call of the system, so jobs without a deadline do not do it either.
    return PassedLimit(limits_, device_time(),
                       limits_.deadline == absl::InfiniteFuture() ? absl::InfinitePast() : now_());
  }
  // Time on the device of all runs of the job, this one included.
  absl::Duration device_time() const { return time_before_ + watch_.Elapsed(); }

  void SetProgress(const train::Progress& progress) {
    absl::MutexLock lock(&mu_);
    progress_ = progress;
  }
  train::Progress progress() const {
    absl::MutexLock lock(&mu_);
    return progress_;
  }

  // The error with which the newest try to write a checkpoint, or to store the run's end, came out; Ok: it was written.
  void SetTrouble(const absl::Status& error) {
    absl::MutexLock lock(&mu_);
    trouble_ = error.ok() ? Trouble() : Trouble{OneLine(error.message()), trouble_.runs};
  }
  Trouble trouble() const {
    absl::MutexLock lock(&mu_);
    return trouble_;
  }

  // `entries`: nullptr leaves those reported before.
  void SetCache(const graphcache::Snapshot& snapshot, Entries entries) {
    absl::MutexLock lock(&mu_);
    cache_.snapshot = snapshot;
    // The old ones are freed after the lock.
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
  mutable absl::Mutex mu_;  // held for a copy only: a training step never waits for the store
  train::Progress progress_ ABSL_GUARDED_BY(mu_);
  Cache cache_ ABSL_GUARDED_BY(mu_);
  Trouble trouble_ ABSL_GUARDED_BY(mu_);
  spec::JobLimits limits_ ABSL_GUARDED_BY(mu_);
  JobId preempted_by_ ABSL_GUARDED_BY(mu_);
};

// The calls that a run's news go to.
struct RunHooks {
  std::function<void()> notify;  // tells watchers; each step
  // Stores LiveRun's progress, its cache, and the epochs recorded since, when it can and on another thread.
  std::function<void()> store_soon;
  // The same at once.
  std::function<absl::Status()> store_progress;
  // Ok: the epochs recorded so far are in the store.
  std::function<absl::Status()> store_epochs;
  std::function<void(const train::EpochMetrics&)> record_epoch;  // publishes it
  // Replaces those of equal sequence; on disk when it returns Ok.
  std::function<absl::Status(const std::vector<graphcache::Command>&)> store_commands;
  std::function<void(int64_t)> mark_step;  // cheap; each step
  // The job has come to this state, WARMING_UP or RUNNING; false: that could not be stored.
  std::function<bool(JobState)> advance;
  // Since a moment before the run, by a clock that nobody sets.
  std::function<absl::Duration()> now;
  // Told of every sign of progress, if given.
  DeviceActivityBoard* activity = nullptr;
};

struct RunMetrics {
  telemetry::JobMetrics& job;
  telemetry::GraphCacheMetrics& graph_cache;
};

// Progress, epochs and the graph cache are in memory at once, and in the store at most once a second and at each
// checkpoint. No step waits for the store where another process has locked it: what cannot be stored then is stored
// later, a command waits, and a checkpoint is put off. Only the last checkpoint of a run waits.
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
  // If the last time was a second ago.
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
  int64_t step_ = 0;  // of the newest progress
  absl::Duration last_store_;
  JobState state_ = JobState::kPreparing;  // the newest that was stored of this run
  // No state is stored before this time, because the store failed just now.
  absl::Duration next_advance_ = -absl::InfiniteDuration();
  // No commands are stamped before this time, because the store failed just now.
  absl::Duration next_stamp_ = -absl::InfiniteDuration();
};

// Stores what a run tells, on a thread of its own, so that no step waits for the disk.
// Threads: made and destroyed by the device thread; StoreSoon is safe anywhere.
class RunWriter {
 public:
  // `store` is called on the new thread, with no patience for a lock of another process; where it fails it is called
  // again a second later. `what` names the run in the log, which hears of the first of several errors in a row.
  // Errors: Unavailable where the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<RunWriter>> Start(std::string what, std::function<absl::Status()> store);
  // Waits for the store that is under way. Requests since then are dropped.
  ~RunWriter();

  // Never waits.
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
