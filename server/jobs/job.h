// A job as the daemon knows it, its states, its limits, and its id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "spec/job_spec.h"
#include "train/runner.h"

namespace permafrost::jobs {

// The states of a job, and how it came into them.
// Threads: everything here is pure.
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
// Counts of jobs by JobState.
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

// Why a job came into a state, in UPPER_SNAKE_CASE. For FAILED it is its Failure's reason.
namespace why {
inline constexpr std::string_view kSubmitted = "SUBMITTED";
inline constexpr std::string_view kResumed = "RESUMED";
inline constexpr std::string_view kRetried = "RETRIED";
inline constexpr std::string_view kDrained = "DRAINED";
inline constexpr std::string_view kPreempted = "PREEMPTED";
inline constexpr std::string_view kStopWithdrawn = "STOP_WITHDRAWN";
inline constexpr std::string_view kServerDied = "SERVER_DIED";
inline constexpr std::string_view kMachineError = "MACHINE_ERROR";
inline constexpr std::string_view kTooFewPeers = "TOO_FEW_PEERS";
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

// Labels that the owner of a job gives it, by key.
using Labels = std::map<std::string, std::string>;
inline constexpr size_t kMaxLabels = 64;
// True if a label may have this key: [a-z][a-z0-9_-]{0,62}.
bool IsLabelKey(std::string_view key);
// Adds a violation of `FIELD.KEY` for each bad label, of `field` for too many.
void Validate(const Labels& labels, std::string_view field, Violations& violations);

// The traits of a dataset that decide the defaults of its jobs.
struct DatasetTraits {
  spec::ModelLevel level = spec::ModelLevel::kGraph;  // what they predict for
  bool gives_links = false;                           // it divides links by itself
  bool bare_nodes = false;                            // a set of graphs whose nodes have no features
  // data::Dataset's.
  std::string uid;
  absl::Time create_time = absl::InfinitePast();
};

// Deaths of the server while the job ran, in a row at the same place.
struct Deaths {
  int32_t count = 0;
  int64_t step = -1;            // steps done when it died; -1: before the run's first step
  int64_t checkpoint_step = 0;  // at the last of them
  bool operator==(const Deaths&) const = default;
};

// Errors of the machine (transient, status.h) that the job has met and not got over yet.
struct Trouble {
  std::string error;                             // the newest, one line; empty: none
  int32_t runs = 0;                              // in a row that such an error ended
  absl::Time retry_time = absl::InfinitePast();  // of a queued job: when it runs again at the earliest
  bool operator==(const Trouble&) const = default;
};

// Returns the message as the error of a job is shown: on one line.
std::string OneLine(absl::string_view message);

// A job's failure, for programs; Job::error is its line for people.
struct Failure {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;  // UPPER_SNAKE_CASE
  std::map<std::string, std::string> metadata;
  bool operator==(const Failure&) const = default;
};

// A snapshot.
struct Job {
  JobId id;
  std::string request_id;
  spec::JobSpec spec;
  // The uid of the dataset that the job was made for: another dataset may have its name by now. Empty: the version that
  // made the job did not note it, and only the times tell.
  std::string dataset_uid;
  // Each line tells the job's user something to know about it, found when it was submitted.
  std::vector<std::string> notes;
  Labels labels;
  JobState state = JobState::kQueued;
  StateHistory history;
  bool pausing = false;      // while on the device: it pauses at its next step boundary
  bool interrupted = false;  // the server's death or an error of the machine ended its last run; until its next step
  absl::Time create_time, start_time = absl::InfinitePast(), end_time = absl::InfinitePast();
  std::string error;                                  // when kFailed
  Failure failure;                                    // when kFailed; code kOk where an older version stored it
  absl::Duration device_time = absl::ZeroDuration();  // of all its runs
  train::Progress progress;
  std::vector<train::EpochMetrics> epochs;
  std::optional<train::RunResult> result;  // when kSucceeded
  int32_t resumes = 0;
  Deaths deaths;
  Trouble trouble;
  int64_t sequence = 0;  // age: rises with creation
  // The record cannot be read: shown as kFailed with the reason as its error, and left as it is on disk.
  bool unreadable = false;
};

// The job comes into `state` now, for this reason (namespace why); nothing is stored.
void Move(Job& job, JobState state, std::string_view reason, const std::string& message = "");
// Moves the job to FAILED, with line, code and reason of `error`. If the error has no reason, its code gives one.
void MoveToFailed(Job& job, const absl::Status& error);
// As it was given to MoveToFailed. Ok for a job that is not FAILED.
absl::Status ErrorOf(const Job& job);

// Changes with what JobManager::Update can change, and with nothing else.
std::string EtagOf(const Job& job);

// The id of a job whose client chose none: "job-20250131-142311-k3x9qa": sorts by `time` (UTC); the random end keeps
// two of one second apart. Threads: safe anywhere.
JobId MakeJobId(absl::Time time);

// Limits on the time that a job may take, max_runtime and deadline, and on how many ended jobs are kept. Threads: pure
// functions.

enum class Limit { kNone, kMaxRuntime, kDeadline };

// Returns the limit of the job that is passed. `device_time`: the time of all its runs so far. `now`: by the clock that
// deadlines are measured by (BookOptions::now).
Limit PassedLimit(const spec::JobLimits& limits, absl::Duration device_time, absl::Time now);

// A new deadline must lie ahead.
void ValidateDeadline(absl::Time deadline, std::string_view field, Violations& violations);

// DeadlineExceeded, reason MAX_RUNTIME or DEADLINE_EXCEEDED, that says how the job goes on. `limit`: not kNone.
absl::Status LimitError(Limit limit, const spec::JobLimits& limits);

// The rule for which ended jobs are kept: by default all. Both may be given: a job is kept where each of them keeps it.
struct KeepFinished {
  std::optional<int64_t> count;                   // those that ended last
  absl::Duration age = absl::InfiniteDuration();  // those that ended less long ago
  bool keeps_all() const { return !count && age == absl::InfiniteDuration(); }
};

}  // namespace permafrost::jobs
