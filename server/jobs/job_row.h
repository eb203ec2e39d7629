// Writes and reads the columns of a job's row in the table `jobs`. Most columns are JSON.
// Threads: no other thread may use the statement during a call. All functions with a statement throw
// SQLite::Exception.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "jobs/job.h"

namespace SQLite {
class Statement;
}  // namespace SQLite

namespace permafrost::jobs {

// A SELECT of the columns that ReadRow reads. A WHERE clause may follow.
extern const char kSelectJob[];
// Reads a job, without its epochs. If a part of the record cannot be read, returns the rest (Job::unreadable).
Job ReadRow(SQLite::Statement& row);

// The columns that change during a job's life, in the order of BindLiveColumns.
inline constexpr char kLiveColumns[] =
    "state = ?, start_time = ?, end_time = ?, progress = ?, result = ?, error = ?, resumes = ?, history = ?, failure = "
    "?";
// Binds the columns of kLiveColumns, starting at `index`. Returns the index after the last one.
int BindLiveColumns(SQLite::Statement& statement, int index, const Job& job);

inline constexpr char kInsertJob[] =
    "INSERT INTO jobs (id, request_id, create_time, spec, labels, state, start_time, end_time, progress, result, "
    "error, "
    "resumes, history, failure) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
void BindInsert(SQLite::Statement& insert, const Job& job);

// The JSON columns. Every value round-trips exactly. Doubles keep every bit; infinities and NaN are strings, because
// JSON has no numbers for them. Seeds are 64-bit unsigned integers, and durations are exact to the nanosecond.
// Columns of older and newer versions can be read: a missing field keeps its default, and an unknown field is
// skipped.
// Threads: pure functions.
// Errors of reading: DataLoss, which names the fault.
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
