// A job as the daemon knows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "train/runner.h"

namespace permafrost::jobs {

enum class JobState { kQueued, kRunning, kCancelling, kSucceeded, kFailed, kCancelled };
inline constexpr EnumNames<JobState, 6> kJobStateNames{{{{JobState::kQueued, "queued"},
                                                         {JobState::kRunning, "running"},
                                                         {JobState::kCancelling, "cancelling"},
                                                         {JobState::kSucceeded, "succeeded"},
                                                         {JobState::kFailed, "failed"},
                                                         {JobState::kCancelled, "cancelled"}}}};
constexpr bool IsTerminal(JobState s) {
  return s == JobState::kSucceeded || s == JobState::kFailed || s == JobState::kCancelled;
}
// Whether the state machine has this arrow. Pure; tested by a table.
//   queued -> running, cancelled | running -> cancelling, succeeded, failed, queued (drain, crash, an error of the
//   machine)
//   cancelling -> cancelled, succeeded, failed
bool CanMove(JobState from, JobState to);

struct JobSpec {
  train::TrainOptions train;
  int32_t priority = 0;  // -100..100; higher first
  bool operator==(const JobSpec&) const = default;
};

// Adds a violation for each bad field, named as on the wire ("spec.epochs").
void Validate(const JobSpec& spec, Violations& violations);

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
  absl::Time retry_time = absl::InfinitePast();  // of a queued job: when it runs again at the earliest, for show
  bool operator==(const Trouble&) const = default;
};

// As an error of a job is shown.
std::string OneLine(absl::string_view message);

// A snapshot.
struct Job {
  JobId id;
  std::string request_id;
  JobSpec spec;
  JobState state = JobState::kQueued;
  absl::Time create_time, start_time = absl::InfinitePast(), end_time = absl::InfinitePast();
  std::string error;  // when kFailed
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

}  // namespace permafrost::jobs
