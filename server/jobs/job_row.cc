#include "jobs/job_row.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "spec/field.h"

namespace permafrost::jobs {

// The columns are in the order in which ReadRow reads them. Times are Unix nanoseconds.
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
    insert.bind(2);  // NULL, because UNIQUE allows only NULL to repeat
  } else {
    insert.bind(2, job.request_id);
  }
  BindTime(insert, 3, job.create_time);
  insert.bind(4, ToJson(SpecColumn{.spec = job.spec, .dataset_uid = job.dataset_uid, .notes = job.notes}));
  insert.bind(5, ToJson(job.labels));
  BindLiveColumns(insert, 6, job);
}

namespace {

struct Schema {
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& options) {
    spec::StoredFields(a, options);
    if constexpr (std::is_same_v<T, spec::ModelOptions>) SetOldDefaults(a, options);
  }

  // Sets each field that an older version did not store to the value that this version implied.
  static void SetOldDefaults(const JsonReader<Schema>& a, spec::ModelOptions& m) {
    const spec::ModelLevel first = spec::FirstLevelOf(m.architecture);
    if (!a.Has("level")) m.level = first;
    if (!a.Has("norm")) m.norm = spec::DefaultsOf(first).norm;
    const bool of_nodes = m.level == spec::ModelLevel::kNode;
    // In older versions, the weights of models on degrees have these columns.
    if (!a.Has("own_degree_columns")) m.own_degree_columns = of_nodes && m.node_inputs == spec::NodeInputs::kDegree;
    // In older versions, models of one large graph read no edge features.
    if (!a.Has("edge_inputs") && of_nodes) m.edge_inputs = spec::EdgeInputs::kNone;
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<SpecColumn>& c) {
    Fields(a, c.spec);
    a("dataset_uid", c.dataset_uid);
    a("notes", c.notes);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<Deaths>& d) {
    a("count", d.count);
    a("step", d.step);
    a("checkpoint_step", d.checkpoint_step);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<Trouble>& t) {
    a("error", t.error);
    a("runs", t.runs);
    a("retry_time", t.retry_time);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<ProgressColumn>& c) {
    Fields(a, c.progress);
    a("crashes", c.deaths);
    a("trouble", c.trouble);
    a("pausing", c.pausing);
    a("interrupted", c.interrupted);
    a("device_time", c.device_time);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<StateChange>& c) {
    a("state", c.state, kJobStateNames);
    a("time", c.time);
    a("reason", c.reason);
    a("message", c.message);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<StateHistory>& h) {
    a("changes", h.changes);
    a("dropped", h.dropped);
  }
};

}  // namespace

std::string ToJson(const SpecColumn& column) { return WriteJson<Schema>(column); }
std::string ToJson(const Labels& labels) { return nlohmann::json(labels).dump(); }
std::string ToJson(const ProgressColumn& column) { return WriteJson<Schema>(column); }
std::string ToJson(const StateHistory& history) { return WriteJson<Schema>(history); }
std::string ToJson(const Failure& failure) {
  if (failure == Failure()) return "{}";
  const nlohmann::json object = {
      {"code", static_cast<int>(failure.code)}, {"reason", failure.reason}, {"metadata", failure.metadata}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string ToJson(const train::EpochMetrics& metrics) { return WriteJson<Schema>(metrics); }
std::string ToJson(const train::RunResult& result) { return WriteJson<Schema>(result); }

absl::StatusOr<SpecColumn> SpecFromJson(const std::string& text) {
  absl::StatusOr<SpecColumn> column = ReadJson<Schema, SpecColumn>("job spec", text);
  // Older servers stored another default of look_ahead in every job. If nothing is sampled, the field has no effect
  // and is reset.
  if (column.ok() && column->spec.train.nodes.fan_outs.empty()) {
    column->spec.train.nodes.look_ahead = spec::NodeTrainingOptions().look_ahead;
  }
  return column;
}
absl::StatusOr<Labels> LabelsFromJson(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const nlohmann::json& value) { return value.is_string(); };
  if (!object.is_object() || !std::all_of(object.begin(), object.end(), is_text)) {
    return absl::DataLossError("labels: no JSON object of strings");
  }
  return object.get<Labels>();
}
absl::StatusOr<ProgressColumn> ProgressFromJson(const std::string& text) {
  return ReadJson<Schema, ProgressColumn>("job progress", text);
}
absl::StatusOr<StateHistory> HistoryFromJson(const std::string& text) {
  return ReadJson<Schema, StateHistory>("state changes", text);
}
absl::StatusOr<Failure> FailureFromJson(const std::string& text) {
  return CatchJsonErrors<Failure>("failure", text, [](const nlohmann::json& object) {
    Failure failure;
    failure.code = static_cast<absl::StatusCode>(object.value("code", 0));
    failure.reason = object.value("reason", "");
    failure.metadata = object.value("metadata", std::map<std::string, std::string>());
    return failure;
  });
}
absl::StatusOr<train::EpochMetrics> EpochFromJson(const std::string& text) {
  return ReadJson<Schema, train::EpochMetrics>("epoch metrics", text);
}
absl::StatusOr<train::RunResult> ResultFromJson(const std::string& text) {
  return ReadJson<Schema, train::RunResult>("job result", text);
}

}  // namespace permafrost::jobs
