// The parts of a job that the store keeps as JSON columns.
// Every value round-trips exactly: doubles bit by bit (infinities and NaN as strings, which JSON lacks), seeds as
// 64-bit unsigned integers, durations to the nanosecond. Reading accepts columns of older and newer versions: a missing
// field keeps its default, an unknown one is skipped. Threads: pure functions. Errors of reading: DataLoss naming what
// is wrong.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "jobs/job.h"

namespace permafrost::jobs {

struct SpecColumn {
  spec::JobSpec spec;
  std::string dataset_uid;
  std::vector<std::string> notes;
};

struct ProgressColumn {
  train::Progress progress;
  Deaths deaths;
  Trouble trouble;
  bool pausing = false;
  bool interrupted = false;
  absl::Duration device_time = absl::ZeroDuration();
};

std::string ToJson(const SpecColumn& column);
std::string ToJson(const Labels& labels);
std::string ToJson(const ProgressColumn& column);
std::string ToJson(const StateHistory& history);
std::string ToJson(const Failure& failure);
std::string ToJson(const train::EpochMetrics& metrics);
std::string ToJson(const train::RunResult& result);

absl::StatusOr<SpecColumn> SpecFromJson(const std::string& text);
absl::StatusOr<Labels> LabelsFromJson(const std::string& text);
absl::StatusOr<ProgressColumn> ProgressFromJson(const std::string& text);
absl::StatusOr<StateHistory> HistoryFromJson(const std::string& text);
absl::StatusOr<Failure> FailureFromJson(const std::string& text);
absl::StatusOr<train::EpochMetrics> EpochFromJson(const std::string& text);
absl::StatusOr<train::RunResult> ResultFromJson(const std::string& text);

}  // namespace permafrost::jobs
