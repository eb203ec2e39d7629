// A job as the daemon knows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
//   queued -> running, cancelled | running -> cancelling, succeeded, failed, queued (drain, crash)
//   cancelling -> cancelled, succeeded, failed
bool CanMove(JobState from, JobState to);

struct JobSpec {
  train::TrainOptions train;
  int32_t priority = 0;  // -100..100; higher first
  bool operator==(const JobSpec&) const = default;
};

// Adds a violation for each bad field, named as on the wire ("spec.epochs").
void Validate(const JobSpec& spec, Violations& violations);

// Deaths of the server while the job ran, since a run last got further.
struct Crashes {
  int32_t count = 0;
  int64_t checkpoint_step = 0;  // at the last of them, or at the drain since
  bool operator==(const Crashes&) const = default;
};

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
  Crashes crashes;
  int64_t sequence = 0;  // age: rises with creation
};

}  // namespace permafrost::jobs
