#include "jobs/job_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/json_fields.h"
#include "spec/stored_fields.h"

namespace permafrost::jobs {
namespace {

struct Schema {
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& options) {
    spec::StoredFields(a, options);
    if constexpr (std::is_same_v<T, spec::ModelOptions>) SetOldDefaults(a, options);
  }

  // Sets what older versions meant where they did not say it.
  static void SetOldDefaults(const JsonReader<Schema>& a, spec::ModelOptions& m) {
    const spec::ModelLevel first = spec::FirstLevelOf(m.architecture);
    if (!a.Has("level")) m.level = first;
    if (!a.Has("norm")) m.norm = spec::DefaultsOf(first).norm;
    const bool of_nodes = m.level == spec::ModelLevel::kNode;
    // Their weights have these columns.
    if (!a.Has("own_degree_columns")) m.own_degree_columns = of_nodes && m.node_inputs == spec::NodeInputs::kDegree;
    // Models of one large graph read no features of edges.
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
  // Older servers wrote another default of it to every job; it has no meaning where nothing is sampled.
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
