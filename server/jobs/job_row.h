// A job as a row of the table of jobs: what is written into its columns, and read from them. Most columns are JSON.
// Threads: each call has the statement for itself. All throw SQLite::Exception.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "jobs/job.h"

namespace SQLite {
class Statement;
}  // namespace SQLite

namespace permafrost::jobs {

// The columns that ReadRow reads, from the table of jobs.
extern const char kSelectJob[];
// Without epochs. One that cannot be read is given as far as it can be (Job::unreadable).
Job ReadRow(SQLite::Statement& row);

// The columns that change while a job lives, in this order.
inline constexpr char kLiveColumns[] =
    "state = ?, start_time = ?, end_time = ?, progress = ?, result = ?, error = ?, resumes = ?, history = ?, failure = "
    "?";
// Binds them from `index` on; returns the index after them.
int BindLiveColumns(SQLite::Statement& statement, int index, const Job& job);

inline constexpr char kInsertJob[] =
    "INSERT INTO jobs (id, request_id, create_time, spec, labels, state, start_time, end_time, progress, result, "
    "error, "
    "resumes, history, failure) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
void BindInsert(SQLite::Statement& insert, const Job& job);

// Columns of JSON. Every value round-trips exactly: doubles bit by bit (infinities and NaN as strings, which JSON
// lacks), seeds as 64-bit unsigned integers, durations to the nanosecond. Reading accepts columns of older and newer
// versions: a missing field keeps its default, an unknown one is skipped. Threads: pure functions. Errors of reading:
// DataLoss naming what is wrong.
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
