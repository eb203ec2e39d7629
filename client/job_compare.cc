// `permafrost job compare`. The client itself compares the jobs that GetJob returns, because they contain everything
// that is shown.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/message_fields.h"
#include "client/style.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {
namespace {

// A field with its value in each job, in the order of the jobs. nullopt means that the job has no value.
struct DifferingField {
  std::string name;  // "optimizer.learning_rate"
  std::vector<std::optional<std::string>> values;
};
struct ComparedNumber {
  std::string name;  // "test MAE, best epoch"
  std::vector<std::optional<double>> values;
};

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

NamedTexts DescriptionOf(const v1::Job& job) {
  NamedTexts fields = MessageFields(job.spec());
  const std::map<std::string, std::string> labels(job.labels().begin(), job.labels().end());
  for (const auto& [key, value] : labels) fields.emplace_back(absl::StrCat("labels.", key), value);
  return fields;
}

std::optional<std::string> Find(const NamedTexts& fields, const std::string& name) {
  const auto found = std::ranges::find(fields, name, &NamedTexts::value_type::first);
  return found == fields.end() ? std::nullopt : std::optional(found->second);
}

using NumberOf = std::function<std::optional<double>(const v1::Job&)>;

NumberOf OfLastEpoch(double (v1::EpochMetrics::*value)() const) {
  return [value](const v1::Job& job) -> std::optional<double> {
    if (job.epochs().empty()) return std::nullopt;
    return (*job.epochs().rbegin().*value)();
  };
}

NumberOf OfResult(const std::function<double(const v1::JobResult&)>& value) {
  return [value](const v1::Job& job) -> std::optional<double> {
    if (!job.has_result()) return std::nullopt;
    return value(job.result());
  };
}

using MetricValues = google::protobuf::RepeatedPtrField<v1::MetricValue>;

std::optional<double> MetricIn(const MetricValues& values, v1::Metric metric) {
  const auto found = std::ranges::find_if(values, [metric](const auto& v) { return v.metric() == metric; });
  return found == values.end() ? std::nullopt : std::optional(found->value());
}

NumberOf OfMetric(const MetricValues& (v1::JobResult::*values)() const, v1::Metric metric) {
  return [values, metric](const v1::Job& job) -> std::optional<double> {
    return job.has_result() ? MetricIn((job.result().*values)(), metric) : std::nullopt;
  };
}

// Returns the metrics that any of the jobs reports, in the order of their first appearance.
std::vector<v1::Metric> MetricsOf(const std::vector<v1::Job>& jobs) {
  std::vector<v1::Metric> metrics;
  const auto add = [&metrics](const MetricValues& values) {
    for (const v1::MetricValue& value : values) {
      if (std::ranges::find(metrics, value.metric()) == metrics.end()) metrics.push_back(value.metric());
    }
  };
  for (const v1::Job& job : jobs) {
    add(job.result().best_valid_metrics());
    if (!job.epochs().empty()) add(job.epochs().rbegin()->valid_metrics());
  }
  return metrics;
}

// Returns the fields of specs and labels ("labels.team") that differ, in the order of the .proto file.
std::vector<DifferingField> DifferencesOf(const std::vector<v1::Job>& jobs) {
  std::vector<NamedTexts> all;
  all.reserve(jobs.size());
  std::vector<std::string> names;
  for (const v1::Job& job : jobs) {
    all.push_back(DescriptionOf(job));
    for (const auto& [name, value] : all.back()) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::vector<DifferingField> differences;
  for (const std::string& name : names) {
    DifferingField field{.name = name, .values = {}};
    field.values.reserve(all.size());
    for (const NamedTexts& fields : all) field.values.push_back(Find(fields, name));
    const auto differs = [&field](const auto& value) { return value != field.values.front(); };
    if (std::ranges::any_of(field.values, differs)) differences.push_back(std::move(field));
  }
  return differences;
}

// Returns the numbers that at least one job has: losses, metrics, sizes and times.
std::vector<ComparedNumber> NumbersOf(const std::vector<v1::Job>& jobs) {
  std::vector<std::pair<std::string, NumberOf>> rows{
      {"epochs done", [](const v1::Job& job) { return static_cast<double>(job.epochs_size()); }},
      {"best epoch", OfResult([](const auto& r) { return static_cast<double>(r.best_epoch()); })},
      {"train loss, last epoch", OfLastEpoch(&v1::EpochMetrics::train_loss)},
      {"valid loss, last epoch", OfLastEpoch(&v1::EpochMetrics::valid_loss)},
      {"test loss, best epoch", OfResult(&v1::JobResult::best_test_loss)}};
  for (const v1::Metric metric : MetricsOf(jobs)) {
    const std::string name = MetricName(metric);
    rows.emplace_back(absl::StrCat("valid ", name, ", last epoch"), [metric](const v1::Job& job) {
      return job.epochs().empty() ? std::nullopt : MetricIn(job.epochs().rbegin()->valid_metrics(), metric);
    });
    rows.emplace_back(absl::StrCat("valid ", name, ", best epoch"),
                      OfMetric(&v1::JobResult::best_valid_metrics, metric));
    rows.emplace_back(absl::StrCat("test ", name, ", best epoch"), OfMetric(&v1::JobResult::best_test_metrics, metric));
    rows.emplace_back(absl::StrCat("test ", name, ", last epoch"),
                      OfMetric(&v1::JobResult::final_test_metrics, metric));
  }
  rows.emplace_back("parameters", OfResult([](const auto& r) { return static_cast<double>(r.num_parameters()); }));
  rows.emplace_back("step, ms", OfResult(&v1::JobResult::mean_step_milliseconds));
  rows.emplace_back("train time, s", OfResult(&v1::JobResult::train_seconds));
  rows.emplace_back("graphs, nodes or links/s", OfLastEpoch(&v1::EpochMetrics::graphs_per_second));

  std::vector<ComparedNumber> numbers;
  for (const auto& [name, of] : rows) {
    ComparedNumber number{.name = name, .values = {}};
    number.values.reserve(jobs.size());
    for (const v1::Job& job : jobs) number.values.push_back(of(job));
    const auto is_there = [](const auto& value) { return value.has_value(); };
    if (std::ranges::any_of(number.values, is_there)) numbers.push_back(std::move(number));
  }
  return numbers;
}

// Makes one table with a column for each job, and rows for states, differing fields and numbers.
std::string RenderComparison(const std::vector<v1::Job>& jobs, const RenderStyle& style) {
  std::vector<Column> columns{{"JOB"}};
  std::vector<Cell> states{"state"};
  for (const v1::Job& job : jobs) {
    columns.push_back({OneLine(StripCollection("jobs", job.name())), Align::kRight});
    states.emplace_back(StateName(job.state()));
  }
  std::vector<std::vector<Cell>> rows{std::move(states)};
  for (const DifferingField& field : DifferencesOf(jobs)) {
    std::vector<Cell> row{field.name};
    for (const auto& value : field.values) row.emplace_back(value ? OneLine(*value) : kNothing);
    rows.push_back(std::move(row));
  }
  for (const ComparedNumber& number : NumbersOf(jobs)) {
    std::vector<Cell> row{number.name};
    for (const auto& value : number.values) {
      const bool whole = value && std::abs(*value) < 1e15 && std::floor(*value) == *value;
      row.emplace_back(!value ? kNothing : whole ? CountText(static_cast<int64_t>(*value)) : MetricText(*value));
    }
    rows.push_back(std::move(row));
  }
  return RenderTable(columns, rows, style);
}

// Returns the comparison as one line of JSON.
std::string ComparisonToJson(const std::vector<v1::Job>& jobs) {
  using Json = nlohmann::ordered_json;
  Json out{{"jobs", Json::array()}};
  for (const v1::Job& job : jobs) out["jobs"].push_back({{"name", job.name()}, {"state", StateName(job.state())}});
  out["differences"] = Json::object();
  for (const DifferingField& field : DifferencesOf(jobs)) {
    auto& values = out["differences"][field.name] = Json::array();
    for (const auto& value : field.values) values.push_back(value ? Json(*value) : Json());
  }
  out["numbers"] = Json::object();
  for (const ComparedNumber& number : NumbersOf(jobs)) {
    auto& values = out["numbers"][number.name] = Json::array();
    // JSON lacks NaN and infinities, so these are written as null.
    for (const auto& value : number.values) values.push_back(value && std::isfinite(*value) ? Json(*value) : Json());
  }
  return absl::StrCat(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

ExitCode CompareJobs(Session& session, const std::vector<std::string>& ids) {
  const auto stub = v1::JobService::NewStub(session.channel());
  std::vector<v1::Job> jobs;
  for (const std::string& id : ids) {
    v1::GetJobRequest request;
    request.set_name(WithCollection("jobs", id));
    const grpc::Status status = session.Unary(
        [&](grpc::ClientContext* context) { return stub->GetJob(context, request, &jobs.emplace_back()); });
    if (!status.ok()) return session.Fail(status);
  }
  if (session.json()) {
    session.Print(ComparisonToJson(jobs));
  } else {
    session.Print(RenderComparison(jobs, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobCompare(CLI::App& job, Command& chosen) {
  CLI::App* compare =
      job.add_subcommand("compare", "Jobs side by side: what differs in their descriptions, and what came of them");
  const auto ids = std::make_shared<std::vector<std::string>>();
  compare->add_option("ID", *ids, "The jobs, two or more")->type_name("")->required()->expected(2, 1000);
  compare->callback([ids, &chosen] { chosen = [ids](Session& session) { return CompareJobs(session, *ids); }; });
}

}  // namespace permafrost::client
