// What a running job shows and is asked, between the device thread and everyone else.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "jobs/run_counters.h"
#include "telemetry/job_metrics.h"
#include "telemetry/log.h"
#include "train/runner.h"

namespace permafrost::jobs {

// The running job as others see it.
// Threads: all methods are safe anywhere.
class LiveRun {
 public:
  void RequestCancel() { cancel_.store(true, std::memory_order_release); }
  bool cancel_requested() const { return cancel_.load(std::memory_order_acquire); }

  void SetProgress(const train::Progress& progress) {
    absl::MutexLock lock(&mu_);
    progress_ = progress;
  }
  train::Progress progress() const {
    absl::MutexLock lock(&mu_);
    return progress_;
  }

 private:
  std::atomic<bool> cancel_{false};
  mutable absl::Mutex mu_;  // held for a copy only: a training step never waits for the store
  train::Progress progress_ ABSL_GUARDED_BY(mu_);
};

// Where a run's news go.
struct RunHooks {
  std::function<void()> notify;                                  // tells watchers; each step
  std::function<void()> store_progress;                          // of LiveRun, and the epochs recorded since
  std::function<void(const train::EpochMetrics&)> record_epoch;  // publishes it
  std::function<absl::Time()> now;
};

// Progress is in memory after each step, and in the store at most once a second and after each epoch and checkpoint.
// Threads: the device thread only. Borrows everything.
class JobRunContext : public train::RunContext {
 public:
  JobRunContext(const train::TrainOptions& options, bool resumed, const std::atomic<bool>& draining, LiveRun& live,
                telemetry::JobLog& log, telemetry::JobMetrics& metrics, RunHooks hooks);

  train::StopRequest stop_requested() const override;
  void OnProgress(const train::Progress& progress) override;
  void OnEpoch(const train::EpochMetrics& metrics) override;
  void OnCheckpoint(int64_t step, absl::Duration duration) override;
  void Log(train::LogLevel level, std::string_view line) override;

 private:
  void StoreProgress();

  const train::TrainOptions& options_;
  const std::atomic<bool>& draining_;
  LiveRun& live_;
  telemetry::JobLog& log_;
  telemetry::JobMetrics& metrics_;
  const RunHooks hooks_;
  RunCounters counters_;
  absl::Time last_store_;
};

}  // namespace permafrost::jobs
