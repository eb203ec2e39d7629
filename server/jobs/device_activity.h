// Tells what the device thread does just now, so that a watchdog sees whether it gets on.
// Threads: all methods are safe anywhere. The lock is held for a copy only.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/enum_names.h"
#include "base/id.h"

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

}  // namespace permafrost::jobs
