#include "jobs/job_json.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace permafrost::jobs {
namespace {

using nlohmann::json;

// A Writer or a Reader visits the fields of a struct: each struct lists its fields once, below.
class Writer {
 public:
  template <class T>
  using Visited = const T;

  template <std::integral T>
  void operator()(const char* name, const T& value) {
    object_[name] = value;
  }
  void operator()(const char* name, const double& value) {
    if (std::isfinite(value)) {
      object_[name] = value;
    } else {
      object_[name] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
  }
  void operator()(const char* name, const absl::Duration& value) { object_[name] = absl::FormatDuration(value); }
  void operator()(const char* name, const DatasetId& value) { object_[name] = value.value(); }
  template <class E, std::size_t N>
  void operator()(const char* name, const E& value, const EnumNames<E, N>& names) {
    object_[name] = std::string(names.Name(value));
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* name, const T& value);

  std::string Text() const { return object_.dump(); }

 private:
  json object_ = json::object();
};

// Throws json::exception or BadField.
struct BadField {
  std::string description;
};

class Reader {
 public:
  template <class T>
  using Visited = T;

  explicit Reader(json object) : object_(std::move(object)) {
    if (!object_.is_object()) throw BadField{absl::StrCat("an object was expected, not ", object_.type_name())};
  }

  template <std::integral T>
  void operator()(const char* name, T& value) {
    if (const json* field = Find(name)) field->get_to(value);
  }
  void operator()(const char* name, double& value) {
    const json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) {
      field->get_to(value);
      return;
    }
    const auto& text = field->get_ref<const std::string&>();
    if (text == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (text == "inf") {
      value = std::numeric_limits<double>::infinity();
    } else if (text == "-inf") {
      value = -std::numeric_limits<double>::infinity();
    } else {
      throw BadField{absl::StrCat(name, ": \"", text, "\" is not a number, nan, inf or -inf")};
    }
  }
  void operator()(const char* name, absl::Duration& value) {
    const json* field = Find(name);
    if (field == nullptr) return;
    const auto& text = field->get_ref<const std::string&>();
    if (!absl::ParseDuration(text, &value)) throw BadField{absl::StrCat(name, ": \"", text, "\" is not a duration")};
  }
  void operator()(const char* name, DatasetId& value) {
    if (const json* field = Find(name)) value = DatasetId(field->get<std::string>());
  }
  template <class E, std::size_t N>
  void operator()(const char* name, E& value, const EnumNames<E, N>& names) {
    const json* field = Find(name);
    if (field == nullptr) return;
    const auto& text = field->get_ref<const std::string&>();
    const auto parsed = names.Parse(text);
    if (!parsed) throw BadField{absl::StrCat(name, ": \"", text, "\" is none of ", names.Accepted())};
    value = *parsed;
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* name, T& value);

 private:
  const json* Find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }
  const json object_;
};

template <class A>
void Fields(A& a, typename A::template Visited<nn::ModelOptions>& m) {
  a("architecture", m.architecture, nn::kArchitectureNames);
  a("hidden_channels", m.hidden_channels);
  a("num_layers", m.num_layers);
  a("pooling", m.pooling, nn::kPoolingNames);
}

template <class A>
void Fields(A& a, typename A::template Visited<nn::OptimizerOptions>& o) {
  a("algorithm", o.algorithm, nn::kOptimizerNames);
  a("learning_rate", o.learning_rate);
  a("weight_decay", o.weight_decay);
}

template <class A>
void Fields(A& a, typename A::template Visited<train::CheckpointOptions>& c) {
  a("every_steps", c.every_steps);
  a("keep", c.keep);
}

template <class A>
void Fields(A& a, typename A::template Visited<JobSpec>& s) {
  a("dataset", s.train.dataset);
  a("model", s.train.model);
  a("optimizer", s.train.optimizer);
  a("loss", s.train.loss, nn::kLossNames);
  a("epochs", s.train.epochs);
  a("batch_size", s.train.batch_size);
  a("seed", s.train.seed);
  a("checkpoint", s.train.checkpoint);
  a("priority", s.priority);
}

template <class A>
void Fields(A& a, typename A::template Visited<train::PhaseSeconds>& p) {
  a("batch", p.batch);
  a("forward", p.forward);
  a("backward", p.backward);
  a("optimizer", p.optimizer);
}

template <class A>
void Fields(A& a, typename A::template Visited<train::Progress>& p) {
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
}

template <class A>
void Fields(A& a, typename A::template Visited<Crashes>& c) {
  a("count", c.count);
  a("checkpoint_step", c.checkpoint_step);
}

template <class A>
void Fields(A& a, typename A::template Visited<ProgressColumn>& c) {
  Fields(a, c.progress);
  a("crashes", c.crashes);
}

template <class A>
void Fields(A& a, typename A::template Visited<train::EpochMetrics>& m) {
  a("epoch", m.epoch);
  a("train_loss", m.train_loss);
  a("valid_loss", m.valid_loss);
  a("valid_mae", m.valid_mae);
  a("learning_rate", m.learning_rate);
  a("train_seconds", m.train_seconds);
  a("valid_seconds", m.valid_seconds);
  a("graphs_per_second", m.graphs_per_second);
}

template <class A>
void Fields(A& a, typename A::template Visited<train::RunResult>& r) {
  a("best_epoch", r.best_epoch);
  a("best_valid_mae", r.best_valid_mae);
  a("best_test_mae", r.best_test_mae);
  a("best_test_loss", r.best_test_loss);
  a("final_test_mae", r.final_test_mae);
  a("final_test_loss", r.final_test_loss);
  a("train_seconds", r.train_seconds);
  a("mean_step_milliseconds", r.mean_step_milliseconds);
  a("num_parameters", r.num_parameters);
}

template <class T>
requires std::is_class_v<T>
void Writer::operator()(const char* name, const T& value) {
  Writer inner;
  Fields(inner, value);
  object_[name] = std::move(inner.object_);
}

template <class T>
requires std::is_class_v<T>
void Reader::operator()(const char* name, T& value) {
  if (const json* field = Find(name)) {
    Reader inner(*field);
    Fields(inner, value);
  }
}

template <class T>
std::string Write(const T& value) {
  Writer writer;
  Fields(writer, value);
  return writer.Text();
}

template <class T>
absl::StatusOr<T> Read(const char* what, const std::string& text) {
  T value;
  try {
    Reader reader(json::parse(text));
    Fields(reader, value);
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(what, ": ", error.what()));
  } catch (const BadField& error) {
    return absl::DataLossError(absl::StrCat(what, ": ", error.description));
  }
  return value;
}

}  // namespace

std::string ToJson(const JobSpec& spec) { return Write(spec); }
std::string ToJson(const ProgressColumn& column) { return Write(column); }
std::string ToJson(const train::EpochMetrics& metrics) { return Write(metrics); }
std::string ToJson(const train::RunResult& result) { return Write(result); }

absl::StatusOr<JobSpec> SpecFromJson(const std::string& text) { return Read<JobSpec>("job spec", text); }
absl::StatusOr<ProgressColumn> ProgressFromJson(const std::string& text) {
  return Read<ProgressColumn>("job progress", text);
}
absl::StatusOr<train::EpochMetrics> EpochFromJson(const std::string& text) {
  return Read<train::EpochMetrics>("epoch metrics", text);
}
absl::StatusOr<train::RunResult> ResultFromJson(const std::string& text) {
  return Read<train::RunResult>("job result", text);
}

}  // namespace permafrost::jobs
