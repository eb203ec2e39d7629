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
  static void Fields(A& a, typename A::template Visited<train::PhaseSeconds>& p) {
    a("batch", p.batch);
    a("forward", p.forward);
    a("backward", p.backward);
    a("optimizer", p.optimizer);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<data::PageCounters>& p) {
    a("wanted_pages", p.wanted_pages);
    a("resident_pages", p.resident_pages);
    a("sampled_pages", p.sampled_pages);
    a("advised_bytes", p.advised_bytes);
    a("advice_calls", p.advice_calls);
    a("major_faults", p.major_faults);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<data::RowReaderState>& r) {
    a("kind", r.kind);
    a("fallback", r.fallback);
    a("direct", r.direct);
    a("depth", r.depth);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<data::RowCounters>& c) {
    a("hits", c.hits);
    a("misses", c.misses);
    a("evictions", c.evictions);
    a("reads", c.reads);
    a("read_bytes", c.read_bytes);
    a("read_errors", c.read_errors);
    a("read_seconds_sum", c.read_seconds_sum);
    a("stall_seconds", c.stall_seconds);
    a("over_budget", c.over_budget);
    a("resizes", c.resizes);
    a("budget_bytes", c.budget_bytes);
    a("used_bytes", c.used_bytes);
    a("rows", c.rows);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<data::RowReading>& r) {
    a("reader", r.reader);
    a("counters", r.counters);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<train::LookAhead>& l) {
    a("depth", l.depth);
    a("ready", l.ready);
    a("sampled_edges", l.sampled_edges);
    a("stalls", l.stalls);
    a("pages", l.pages);
    a("rows", l.rows);
    a("cut_batches", l.cut_batches);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<train::Progress>& p) {
    a("epoch", p.epoch);
    a("step_in_epoch", p.step_in_epoch);
    a("steps_per_epoch", p.steps_per_epoch);
    a("step", p.step);
    a("loss", p.loss);
    a("graphs_per_second", p.graphs_per_second);
    a("eta", p.eta);
    a("graphs", p.graphs);
    a("nodes", p.nodes);
    a("edges", p.edges);
    a("padding_nodes", p.padding_nodes);
    a("padding_edges", p.padding_edges);
    a("phase_seconds", p.phase_seconds);
    a("checkpoint_step", p.checkpoint_step);
    a("skipped_batches", p.skipped_batches);
    a("look_ahead", p.look_ahead);
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

  template <class A>
  static void Fields(A& a, typename A::template Visited<train::EpochMetrics>& m) {
    a("epoch", m.epoch);
    a("train_loss", m.train_loss);
    a("valid_loss", m.valid_loss);
    a("valid_metric", m.valid_metric);
    a("learning_rate", m.learning_rate);
    a("train_seconds", m.train_seconds);
    a("valid_seconds", m.valid_seconds);
    a("graphs_per_second", m.graphs_per_second);
    a("valid_metrics", m.valid_metrics);
    a("steps", m.steps);
    a("exact_hits", m.exact_hits);
    a("padded_hits", m.padded_hits);
    a("eager_steps", m.eager_steps);
    a("captures", m.captures);
    a("nodes", m.nodes);
    a("edges", m.edges);
    a("padding_nodes", m.padding_nodes);
    a("padding_edges", m.padding_edges);
    a("cache_bytes", m.cache_bytes);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<train::RunResult>& r) {
    a("best_epoch", r.best_epoch);
    a("best_valid_metric", r.best_valid_metric);
    a("best_test_metric", r.best_test_metric);
    a("best_test_loss", r.best_test_loss);
    a("final_test_metric", r.final_test_metric);
    a("final_test_loss", r.final_test_loss);
    a("train_seconds", r.train_seconds);
    a("mean_step_milliseconds", r.mean_step_milliseconds);
    a("num_parameters", r.num_parameters);
    a("best_valid_metrics", r.best_valid_metrics);
    a("best_test_metrics", r.best_test_metrics);
    a("final_test_metrics", r.final_test_metrics);
    a("unranked_valid_links", r.unranked_valid_links);
    a("unranked_test_links", r.unranked_test_links);
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
