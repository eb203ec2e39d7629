// A job as the daemon knows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "train/runner.h"

namespace permafrost::jobs {

enum class JobState { kQueued, kRunning, kCancelling, kSucceeded, kFailed, kCancelled, kPaused };
inline constexpr EnumNames<JobState, 7> kJobStateNames{{{{JobState::kQueued, "queued"},
                                                         {JobState::kRunning, "running"},
                                                         {JobState::kCancelling, "cancelling"},
                                                         {JobState::kSucceeded, "succeeded"},
                                                         {JobState::kFailed, "failed"},
                                                         {JobState::kCancelled, "cancelled"},
                                                         {JobState::kPaused, "paused"}}}};
// By JobState.
using JobCounts = std::array<int64_t, kJobStateNames.rows.size()>;
constexpr bool IsTerminal(JobState s) {
  return s == JobState::kSucceeded || s == JobState::kFailed || s == JobState::kCancelled;
}
// Whether the state machine has this arrow. Pure; tested by a table.
//   queued -> running, cancelled, paused
//   running -> cancelling, succeeded, failed, queued (drain, crash, an error of the machine), paused
//   cancelling -> cancelled, succeeded, failed
//   paused -> queued, cancelled
//   failed, cancelled -> queued (a retry)
bool CanMove(JobState from, JobState to);

// What the owner of a job says of it, by key.
using Labels = std::map<std::string, std::string>;
inline constexpr size_t kMaxLabels = 64;
// Whether a label may have it: [a-z][a-z0-9_-]{0,62}.
bool IsLabelKey(std::string_view key);
// Adds a violation of `FIELD.KEY` for each bad label, of `field` for too many.
void Validate(const Labels& labels, std::string_view field, Violations& violations);

struct JobSpec {
  train::TrainOptions train;
  int32_t priority = 0;  // -100..100; higher first
  bool operator==(const JobSpec&) const = default;
};

// Adds a violation for each bad field, named as on the wire ("spec.epochs").
void Validate(const JobSpec& spec, Violations& violations);

void ValidatePriority(int32_t priority, std::string_view field, Violations& violations);

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
  Labels labels;
  JobState state = JobState::kQueued;
  bool pausing = false;  // when kRunning: it pauses at its next step boundary
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

// Changes with what JobManager::Update can change, and with nothing else.
std::string EtagOf(const Job& job);

}  // namespace permafrost::jobs
