// The states of a job, and how it came into them.
// Threads: everything here is pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/enum_names.h"

namespace permafrost::jobs {

enum class JobState {
  kQueued,
  kRunning,
  kCancelling,
  kSucceeded,
  kFailed,
  kCancelled,
  kPaused,
  kPreparing,
  kWarmingUp,
  kRecovering
};
inline constexpr EnumNames<JobState, 10> kJobStateNames{{{{JobState::kQueued, "queued"},
                                                          {JobState::kRunning, "running"},
                                                          {JobState::kCancelling, "cancelling"},
                                                          {JobState::kSucceeded, "succeeded"},
                                                          {JobState::kFailed, "failed"},
                                                          {JobState::kCancelled, "cancelled"},
                                                          {JobState::kPaused, "paused"},
                                                          {JobState::kPreparing, "preparing"},
                                                          {JobState::kWarmingUp, "warming-up"},
                                                          {JobState::kRecovering, "recovering"}}}};
// By JobState.
using JobCounts = std::array<int64_t, kJobStateNames.rows.size()>;

constexpr bool IsTerminal(JobState s) {
  return s == JobState::kSucceeded || s == JobState::kFailed || s == JobState::kCancelled;
}
// True if the device thread has the job.
constexpr bool IsOnDevice(JobState s) {
  return s == JobState::kPreparing || s == JobState::kWarmingUp || s == JobState::kRecovering ||
         s == JobState::kRunning || s == JobState::kCancelling;
}
// True if it waits to be taken or to be resumed.
constexpr bool IsWaiting(JobState s) { return s == JobState::kQueued || s == JobState::kPaused; }

// True if the state machine has this arrow. Pure; tested by a table.
//   queued -> preparing, recovering, paused, cancelled, failed (its deadline passed)
//   preparing -> warming-up, running, and as running
//   warming-up, recovering -> running, and as running
//   running -> cancelling, succeeded, failed, paused, queued (drain, crash, an error of machine or device, preempted)
//   cancelling -> cancelled, succeeded, failed
//   paused -> queued, cancelled, failed (its deadline passed)
//   failed, cancelled -> queued (a retry)
bool CanMove(JobState from, JobState to);

// Why a job came into a state, in UPPER_SNAKE_CASE; of FAILED that of its Failure.
namespace why {
inline constexpr std::string_view kSubmitted = "SUBMITTED";
inline constexpr std::string_view kResumed = "RESUMED";
inline constexpr std::string_view kRetried = "RETRIED";
inline constexpr std::string_view kDrained = "DRAINED";
inline constexpr std::string_view kPreempted = "PREEMPTED";
inline constexpr std::string_view kStopWithdrawn = "STOP_WITHDRAWN";
inline constexpr std::string_view kServerDied = "SERVER_DIED";
inline constexpr std::string_view kMachineError = "MACHINE_ERROR";
inline constexpr std::string_view kDeviceFault = "DEVICE_FAULT";
inline constexpr std::string_view kTaken = "TAKEN";
inline constexpr std::string_view kCapturing = "CAPTURING";
inline constexpr std::string_view kStepped = "STEPPED";
inline constexpr std::string_view kPauseRequested = "PAUSE_REQUESTED";
inline constexpr std::string_view kCancelRequested = "CANCEL_REQUESTED";
inline constexpr std::string_view kFinished = "FINISHED";
}  // namespace why

struct StateChange {
  JobState state = JobState::kQueued;
  absl::Time time;  // by the wall clock: it may be before that of the change before
  std::string reason;
  std::string message;  // one line; may be empty
  bool operator==(const StateChange&) const = default;
};

// The changes of one job, in order. Keeps the newest kMax and counts the rest, so that a job that is interrupted for
// months does not make a record of its own size.
struct StateHistory {
  static constexpr size_t kMax = 64;

  void Add(StateChange change);

  std::vector<StateChange> changes;
  int64_t dropped = 0;
  bool operator==(const StateHistory&) const = default;
};

}  // namespace permafrost::jobs
