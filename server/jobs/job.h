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

// The states of a job, and the reasons for which a job enters a state.
// Threads: every function in this file is safe anywhere.
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
// True if the device thread has taken the job.
constexpr bool IsOnDevice(JobState s) {
  return s == JobState::kPreparing || s == JobState::kWarmingUp || s == JobState::kRecovering ||
         s == JobState::kRunning || s == JobState::kCancelling;
}
// True if the job waits for the device, or to be resumed.
constexpr bool IsWaiting(JobState s) { return s == JobState::kQueued || s == JobState::kPaused; }

// Returns true if a job may move from state `from` to state `to`. A pure function. The moves are:
//   queued -> preparing, recovering, paused, cancelled, failed (its deadline passed)
//   preparing -> warming-up, running, and every state that running leads to
//   warming-up, recovering -> running, and every state that running leads to
//   running -> cancelling, succeeded, failed, paused, queued (drain, crash, error of machine or device, preemption)
//   cancelling -> cancelled, succeeded, failed
//   paused -> queued, cancelled, failed (its deadline passed)
//   failed, cancelled -> queued (a retry)
bool CanMove(JobState from, JobState to);

// Reasons why a job came into a state, in UPPER_SNAKE_CASE. For a job in FAILED, the reason is Failure::reason
// instead.
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
  absl::Time time;  // wall clock, so it may be earlier than the time of the previous change
  std::string reason;
  std::string message;  // one line; may be empty
  bool operator==(const StateChange&) const = default;
};

// The state changes of one job, oldest first. Keeps only the newest kMax, so that the record of a job that is
// interrupted for months stays small. `dropped` counts the changes that were removed.
struct StateHistory {
  static constexpr size_t kMax = 64;

  void Add(StateChange change);

  std::vector<StateChange> changes;
  int64_t dropped = 0;
  bool operator==(const StateHistory&) const = default;
};

// The labels that the owner of a job gives to the job: values by key.
using Labels = std::map<std::string, std::string>;
inline constexpr size_t kMaxLabels = 64;
// True if `key` is a valid label key: [a-z][a-z0-9_-]{0,62}.
bool IsLabelKey(std::string_view key);
// Adds a violation of `field`.KEY for each bad label, and a violation of `field` if there are more than kMaxLabels.
void Validate(const Labels& labels, std::string_view field, Violations& violations);

// The traits of a dataset that decide the defaults of its jobs.
struct DatasetTraits {
  spec::ModelLevel level = spec::ModelLevel::kGraph;  // what jobs on the dataset predict for
  bool gives_links = false;                           // the dataset divides its links into splits
  bool bare_nodes = false;                            // a set of graphs whose nodes have no features
  // `uid` and `create_time` are those of data::Dataset.
  std::string uid;
  absl::Time create_time = absl::InfinitePast();
};

// Counts consecutive deaths of the server, or failures of the device, that occurred while the job was at the same
// place of its run.
struct Deaths {
  int32_t count = 0;
  int64_t step = -1;            // steps done at the last death; -1: before the run's first step
  int64_t checkpoint_step = 0;  // step of the newest checkpoint at the last death
  bool operator==(const Deaths&) const = default;
};

// Errors of the machine from which the job has not recovered yet. They are transient (base/status.h).
struct Trouble {
  std::string error;                             // the newest error, one line; empty: none
  int32_t runs = 0;                              // consecutive runs that such an error ended
  absl::Time retry_time = absl::InfinitePast();  // a queued job does not run before this time
  bool operator==(const Trouble&) const = default;
};

// Returns `message` with line breaks replaced by blanks, as the error of a job is shown.
std::string OneLine(absl::string_view message);

// The reason why a job failed, in a form for programs. Job::error is the text for people.
struct Failure {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;  // UPPER_SNAKE_CASE
  std::map<std::string, std::string> metadata;
  bool operator==(const Failure&) const = default;
};

// A snapshot of a job.
struct Job {
  JobId id;
  std::string request_id;
  spec::JobSpec spec;
  // The uid of the dataset for which the job was made. Another dataset may have the name by now. Empty if an older
  // version made the job and did not record the uid. Only the times of creation then tell the two datasets apart.
  std::string dataset_uid;
  // Notes for the job's user, made when the job was submitted. One line each.
  std::vector<std::string> notes;
  Labels labels;
  JobState state = JobState::kQueued;
  StateHistory history;
  bool pausing = false;  // true: the job is on the device, and will pause at its next step boundary
  // True if a death of the server or an error of the machine ended the last run. The next step sets it to false.
  bool interrupted = false;
  absl::Time create_time, start_time = absl::InfinitePast(), end_time = absl::InfinitePast();
  std::string error;                                  // set if kFailed
  Failure failure;                                    // set if kFailed; code kOk if an older version stored it
  absl::Duration device_time = absl::ZeroDuration();  // time on the device, over all runs
  train::Progress progress;
  std::vector<train::EpochMetrics> epochs;
  std::optional<train::RunResult> result;  // set if kSucceeded
  int32_t resumes = 0;
  Deaths deaths;
  Trouble trouble;
  int64_t sequence = 0;  // each new job gets a higher number, so a lower number means an older job
  // True if the record cannot be read. The job is then shown as kFailed, and `error` says why the record cannot be
  // read. The record on disk is left unchanged.
  bool unreadable = false;
};

// Sets the job's state and adds the change to its history, with the current time. `reason` is a constant of
// namespace `why`. Stores nothing.
void Move(Job& job, JobState state, std::string_view reason, const std::string& message = "");
// Moves the job to FAILED, and sets its error line and its Failure from `error`. If `error` has no reason, the reason
// follows from its code.
void MoveToFailed(Job& job, const absl::Status& error);
// Returns the error that MoveToFailed was given, or Ok if the job is not FAILED. Returns UnknownError if an older
// version stored the failure without its code.
absl::Status ErrorOf(const Job& job);

// Returns a hash of the job's id and of the fields that JobManager::Update can change, and of no other field.
std::string EtagOf(const Job& job);

// Makes an id for a job whose client chose none, such as "job-20250131-142311-k3x9qa". Ids sort by `time` (UTC). The
// random end distinguishes ids that were made in the same second.
JobId MakeJobId(absl::Time time);

// The limits on the time that a job may take (max_runtime and deadline), and the rule for keeping ended jobs.

enum class Limit { kNone, kMaxRuntime, kDeadline };

// Returns the limit that a job has passed; kMaxRuntime if it has passed both. `device_time` is the time of all its
// runs so far. `now` comes from the clock that measures deadlines (BookOptions::now).
Limit PassedLimit(const spec::JobLimits& limits, absl::Duration device_time, absl::Time now);

// Adds a violation of `field` if `deadline` is not in the future.
void ValidateDeadline(absl::Time deadline, std::string_view field, Violations& violations);

// Returns DeadlineExceeded with reason MAX_RUNTIME or DEADLINE_EXCEEDED. The error's message says how the job can be
// retried. `limit` must not be kNone.
absl::Status LimitError(Limit limit, const spec::JobLimits& limits);

// The rule for keeping ended jobs. By default, all are kept. If both fields are given, a job is kept only if it
// satisfies both.
struct KeepFinished {
  std::optional<int64_t> count;                   // keeps this many jobs, those that ended last
  absl::Duration age = absl::InfiniteDuration();  // keeps jobs that ended less than this long ago
  bool keeps_all() const { return !count && age == absl::InfiniteDuration(); }
};

}  // namespace permafrost::jobs
