#include "jobs/job_row.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "jobs/job_json.h"

namespace permafrost::jobs {

// In ReadRow's order. Times are Unix nanoseconds.
const char kSelectJob[] =
    "SELECT sequence, id, request_id, state, create_time, start_time, end_time, spec, progress, result, error, "
    "resumes, labels, history, failure FROM jobs ";

namespace {

void BindTime(SQLite::Statement& statement, int index, absl::Time time) {
  if (time == absl::InfinitePast()) {
    statement.bind(index);
  } else {
    statement.bind(index, static_cast<int64_t>(absl::ToUnixNanos(time)));
  }
}

absl::Time ColumnTime(const SQLite::Column& column) {
  return column.isNull() ? absl::InfinitePast() : absl::FromUnixNanos(column.getInt64());
}

void BindResult(SQLite::Statement& statement, int index, const Job& job) {
  if (job.result) {
    statement.bind(index, ToJson(*job.result));
  } else {
    statement.bind(index);
  }
}

absl::Status ReadState(SQLite::Statement& row, Job& job) {
  const std::string state = row.getColumn(3).getString();
  const std::optional<JobState> parsed = kJobStateNames.Parse(state);
  if (!parsed) return absl::DataLossError(absl::StrCat("state \"", state, "\" is not known"));
  job.state = *parsed;
  PF_ASSIGN_OR_RETURN(SpecColumn spec, SpecFromJson(row.getColumn(7).getString()));
  job.spec = std::move(spec.spec);
  job.dataset_uid = std::move(spec.dataset_uid);
  job.notes = std::move(spec.notes);
  PF_ASSIGN_OR_RETURN(const ProgressColumn progress, ProgressFromJson(row.getColumn(8).getString()));
  job.progress = progress.progress;
  job.deaths = progress.deaths;
  job.trouble = progress.trouble;
  job.pausing = progress.pausing;
  job.interrupted = progress.interrupted;
  job.device_time = progress.device_time;
  PF_ASSIGN_OR_RETURN(job.labels, LabelsFromJson(row.getColumn(12).getString()));
  if (!row.getColumn(9).isNull()) {
    PF_ASSIGN_OR_RETURN(job.result, ResultFromJson(row.getColumn(9).getString()));
  }
  job.error = row.getColumn(10).getString();
  job.resumes = row.getColumn(11).getInt();
  PF_ASSIGN_OR_RETURN(job.history, HistoryFromJson(row.getColumn(13).getString()));
  PF_ASSIGN_OR_RETURN(job.failure, FailureFromJson(row.getColumn(14).getString()));
  return absl::OkStatus();
}

void MarkUnreadable(const absl::Status& why, Job& job) {
  job.unreadable = true;
  job.state = JobState::kFailed;
  job.error = absl::StrCat("the record of job ", job.id.value(),
                           " in the database cannot be read, its files are untouched: ", why.message());
  job.failure = {absl::StatusCode::kDataLoss, "RECORD_UNREADABLE", {}};
}

}  // namespace

Job ReadRow(SQLite::Statement& row) {
  Job job;
  job.sequence = row.getColumn(0).getInt64();
  job.id = JobId(row.getColumn(1).getString());
  if (!row.getColumn(2).isNull()) job.request_id = row.getColumn(2).getString();
  job.create_time = ColumnTime(row.getColumn(4));
  job.start_time = ColumnTime(row.getColumn(5));
  job.end_time = ColumnTime(row.getColumn(6));
  if (const absl::Status read = ReadState(row, job); !read.ok()) MarkUnreadable(read, job);
  return job;
}

int BindLiveColumns(SQLite::Statement& statement, int index, const Job& job) {
  statement.bind(index++, std::string(kJobStateNames.Name(job.state)));
  BindTime(statement, index++, job.start_time);
  BindTime(statement, index++, job.end_time);
  statement.bind(index++, ToJson(ProgressColumn{.progress = job.progress,
                                                .deaths = job.deaths,
                                                .trouble = job.trouble,
                                                .pausing = job.pausing,
                                                .interrupted = job.interrupted,
                                                .device_time = job.device_time}));
  BindResult(statement, index++, job);
  statement.bind(index++, job.error);
  statement.bind(index++, job.resumes);
  statement.bind(index++, ToJson(job.history));
  statement.bind(index++, ToJson(job.failure));
  return index;
}

void BindInsert(SQLite::Statement& insert, const Job& job) {
  insert.bind(1, job.id.value());
  if (job.request_id.empty()) {
    insert.bind(2);  // NULL: the only value that UNIQUE lets repeat
  } else {
    insert.bind(2, job.request_id);
  }
  BindTime(insert, 3, job.create_time);
  insert.bind(4, ToJson(SpecColumn{.spec = job.spec, .dataset_uid = job.dataset_uid, .notes = job.notes}));
  insert.bind(5, ToJson(job.labels));
  BindLiveColumns(insert, 6, job);
}

}  // namespace permafrost::jobs
