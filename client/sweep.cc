#include "client/sweep.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/spec_rows.h"
#include "client/style.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

constexpr size_t kMostValues = 10'000;

// Adds 2, 3, 4, 5 for "2..5", and any other text as it is.
absl::Status AddValues(const std::string& text, std::vector<std::string>& values) {
  const size_t dots = text.find("..");
  int64_t first = 0, last = 0;
  const bool range = dots != std::string::npos && absl::SimpleAtoi(text.substr(0, dots), &first) &&
                     absl::SimpleAtoi(text.substr(dots + 2), &last);
  if (!range) {
    values.push_back(text);
    return absl::OkStatus();
  }
  if (last < first || static_cast<uint64_t>(last) - static_cast<uint64_t>(first) >= kMostValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no range of 1 to ", kMostValues, " rising numbers"));
  }
  for (int64_t value = first; value <= last; ++value) values.push_back(absl::StrCat(value));
  return absl::OkStatus();
}

// Returns the values of the job with this index.
std::vector<std::string> ValuesAt(const std::vector<SweepAxis>& axes, bool side_by_side, size_t index) {
  std::vector<std::string> values(axes.size());
  for (size_t a = axes.size(); a > 0; --a) {
    const std::vector<std::string>& all = axes[a - 1].values;
    values[a - 1] = all[side_by_side ? index : index % all.size()];
    if (!side_by_side) index /= all.size();
  }
  return values;
}

constexpr char kBetweenItems = ':';

// Sets the field from the text that its flag would take, except that list items are separated by ':'.
absl::Status SetFromText(const SpecPath& path, const std::string& text, v1::JobSpec& spec) {
  const google::protobuf::FieldDescriptor& field = *path.back();
  std::vector<std::string> values = {text};
  if (field.is_repeated()) values = absl::StrSplit(text, kBetweenItems);
  for (const std::string& value : values) {
    const std::string refusal = RefusalOf(field, value, kBetweenItems);
    if (!refusal.empty()) return absl::InvalidArgumentError(absl::StrCat(PathName(path), ": ", refusal));
  }
  SetSpecField(path, values, spec);
  return absl::OkStatus();
}

constexpr std::string_view kNegatives = "negatives";

// The flag --negatives means one of two fields, depending on the model. So `negatives` cannot vary together with
// models for which it means different fields.
absl::Status CheckNegatives(const std::vector<SweepAxis>& axes) {
  const auto is_negatives = [](const SweepAxis& axis) { return axis.name == kNegatives; };
  const auto is_model = [](const SweepAxis& axis) { return PathName(axis.path) == "model.architecture"; };
  const auto model = std::ranges::find_if(axes, is_model), negatives = std::ranges::find_if(axes, is_negatives);
  if (model == axes.end() || negatives == axes.end()) return absl::OkStatus();
  // The axis `negatives` varies the field that fits the model in the job's flags.
  const bool of_walks = PathName(negatives->path) == kWalkNegatives;
  v1::JobSpec spec;
  for (const std::string& value : model->values) {
    PF_RETURN_IF_ERROR(SetFromText(model->path, value, spec));
    if (Walks(spec) == of_walks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--vary negatives: is another field of node2vec than of the other "
                     "models; accepted beside --vary ",
                     OneLine(model->name), ": ", AbslView(kWalkNegatives), ", ", AbslView(kLinkNegatives)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepAxis> ParseAxis(const std::string& text, const v1::JobSpec& base) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--vary: '", OneLine(text), "' is not FIELD=VALUE,VALUE,..."));
  }
  SweepAxis axis{.name = text.substr(0, equals), .path = {}, .values = {}};
  auto path = FindSpecField(Walks(base) && axis.name == kNegatives ? kWalkNegatives : axis.name);
  if (!path.ok()) return absl::InvalidArgumentError(absl::StrCat("--vary: ", path.status().message()));
  axis.path = *std::move(path);
  v1::JobSpec scratch;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text.substr(equals + 1), ','))) {
    if (const absl::Status added = AddValues(part, axis.values); !added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--vary ", OneLine(axis.name), ": ", added.message()));
    }
  }
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (const absl::Status set = SetFromText(axis.path, value, scratch); !set.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--vary: ", set.message()));
    }
    if (!seen.insert(value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--vary ", OneLine(axis.name), ": '", OneLine(value), "' stands twice; each is accepted once"));
    }
  }
  return axis;
}

absl::StatusOr<std::vector<SweepJob>> PlanSweep(const v1::JobSpec& base, const std::vector<SweepAxis>& axes,
                                                bool side_by_side, int64_t most) {
  PF_RETURN_IF_ERROR(CheckNegatives(axes));
  uint64_t count = axes.empty() ? 0 : side_by_side ? axes.front().values.size() : 1;
  std::set<std::string> names;
  for (const SweepAxis& axis : axes) {
    if (!names.insert(PathName(axis.path)).second) {
      return absl::InvalidArgumentError(absl::StrCat("--vary: ", PathName(axis.path), " stands twice"));
    }
    if (side_by_side && axis.values.size() != count) {
      return absl::InvalidArgumentError(absl::StrCat("--side-by-side: ", axes.front().name, " has ", count,
                                                     " values and ", axis.name, " has ", axis.values.size(),
                                                     "; equally many are accepted"));
    }
    // Bounds the product, so that it cannot overflow.
    if (!side_by_side) count = std::min<uint64_t>(count * axis.values.size(), kMostValues * kMostValues);
  }
  if (count > static_cast<uint64_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat("--vary makes ", count,
                                                   count >= kMostValues * kMostValues ? " or more" : "",
                                                   " jobs; --max-jobs accepts ", most));
  }
  std::vector<SweepJob> jobs;
  for (uint64_t index = 0; index < count; ++index) {
    SweepJob job{.values = ValuesAt(axes, side_by_side, index), .spec = base};
    for (size_t a = 0; a < axes.size(); ++a) PF_RETURN_IF_ERROR(SetFromText(axes[a].path, job.values[a], job.spec));
    CompleteNames(job.spec);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

bool IsRepetition(const SpecPath& path) {
  const std::string name = PathName(path);
  return name == "seed" || name == "cross_validation.fold" || name == "cross_validation.seed" ||
         name == "link_prediction.split_seed";
}

namespace {

using Values = google::protobuf::RepeatedPtrField<v1::MetricValue>;

// Returns the longest common beginning of the metrics of all jobs with a result, so that each column has one meaning.
std::vector<v1::Metric> CommonMetrics(const std::vector<v1::Job>& jobs) {
  std::vector<v1::Metric> common;
  bool first = true;
  for (const v1::Job& job : jobs) {
    if (!job.has_result()) continue;
    std::vector<v1::Metric> metrics;
    for (const v1::MetricValue& value : job.result().best_test_metrics()) metrics.push_back(value.metric());
    if (std::exchange(first, false)) common = metrics;
    const auto [end, ignored] = std::ranges::mismatch(common, metrics);
    common.erase(end, common.end());
  }
  return common;
}

std::optional<double> ValueOf(const v1::Job& job, const Values& values, size_t metric) {
  if (!job.has_result() || metric >= static_cast<size_t>(values.size())) return std::nullopt;
  return values.Get(static_cast<int>(metric)).value();
}

std::string Text(std::optional<double> value) { return value ? MetricText(*value) : kNothing; }

std::string Text(const Spread& spread) {
  return spread.jobs == 0 ? kNothing : absl::StrCat(MetricText(spread.mean), " ± ", MetricText(spread.deviation));
}

std::vector<Column> MetricColumns(const std::vector<v1::Metric>& metrics) {
  std::vector<Column> columns;
  for (const char* split : {"VALID ", "TEST "}) {
    for (const v1::Metric metric : metrics) columns.push_back({absl::StrCat(split, MetricName(metric)), Align::kRight});
  }
  return columns;
}

// JSON lacks NaN and infinities, so these become null.
nlohmann::json NumberJson(std::optional<double> value) {
  return value && std::isfinite(*value) ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json ToJson(const Spread& spread) {
  const auto number = [&spread](double value) { return spread.jobs > 0 ? NumberJson(value) : nlohmann::json(); };
  return {{"jobs", spread.jobs}, {"mean", number(spread.mean)}, {"standardDeviation", number(spread.deviation)}};
}

std::string MetricKey(v1::Metric metric) { return EnumShortName(*v1::Metric_descriptor(), metric); }

nlohmann::json ValuesJson(const std::vector<SweepAxis>& axes, const std::vector<std::string>& values,
                          bool repetitions) {
  nlohmann::json out = nlohmann::json::object();
  size_t next = 0;
  for (const SweepAxis& axis : axes) {
    if (!repetitions && IsRepetition(axis.path)) continue;
    out[PathName(axis.path)] = values[next++];
  }
  return out;
}

}  // namespace

Spread SpreadOf(const std::vector<double>& values) {
  Spread spread{.jobs = static_cast<int64_t>(values.size())};
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / count);
  return spread;
}

std::vector<SweepGroup> GroupsOf(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                                 const std::vector<v1::Job>& jobs) {
  const size_t metrics = CommonMetrics(jobs).size();
  struct Members {
    SweepGroup group;
    std::vector<std::vector<double>> valid, test;
  };
  std::vector<Members> all;
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::vector<std::string> key;
    for (size_t a = 0; a < axes.size(); ++a) {
      if (!IsRepetition(axes[a].path)) key.push_back(plan[j].values[a]);
    }
    auto found = std::ranges::find(all, key, [](const Members& m) { return m.group.values; });
    if (found == all.end()) {
      Members fresh;
      fresh.group.values = key;
      fresh.valid.resize(metrics);
      fresh.test.resize(metrics);
      found = all.insert(all.end(), std::move(fresh));
    }
    ++found->group.jobs;
    for (size_t m = 0; m < metrics; ++m) {
      const v1::JobResult& result = jobs[j].result();
      if (const auto value = ValueOf(jobs[j], result.best_valid_metrics(), m)) found->valid[m].push_back(*value);
      if (const auto value = ValueOf(jobs[j], result.best_test_metrics(), m)) found->test[m].push_back(*value);
    }
  }
  std::vector<SweepGroup> groups;
  for (Members& members : all) {
    for (const auto& values : members.valid) members.group.valid.push_back(SpreadOf(values));
    for (const auto& values : members.test) members.group.test.push_back(SpreadOf(values));
    groups.push_back(std::move(members.group));
  }
  return groups;
}

std::string RenderSweep(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const RenderStyle& style) {
  const std::vector<v1::Metric> metrics = CommonMetrics(jobs);
  std::vector<Column> columns;
  columns.reserve(axes.size());
  for (const SweepAxis& axis : axes) columns.push_back({OneLine(axis.name), Align::kRight});
  columns.push_back({"JOB"});
  if (!servers.empty()) columns.push_back({"SERVER"});
  columns.insert(columns.end(), {{"STATE"}, {"BEST EPOCH", Align::kRight}});
  const std::vector<Column> of_metrics = MetricColumns(metrics);
  columns.insert(columns.end(), of_metrics.begin(), of_metrics.end());
  std::vector<std::vector<Cell>> rows;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const v1::Job& job = jobs[j];
    std::vector<Cell> row;
    row.reserve(columns.size());
    for (const std::string& value : plan[j].values) row.emplace_back(OneLine(value));
    row.emplace_back(std::string(StripCollection("jobs", job.name())));
    if (!servers.empty()) row.emplace_back(OneLine(servers[j]));
    row.emplace_back(StateName(job.state()));
    row.emplace_back(job.has_result() ? absl::StrCat(job.result().best_epoch()) : std::string(kNothing));
    for (size_t m = 0; m < metrics.size(); ++m)
      row.emplace_back(Text(ValueOf(job, job.result().best_valid_metrics(), m)));
    for (size_t m = 0; m < metrics.size(); ++m)
      row.emplace_back(Text(ValueOf(job, job.result().best_test_metrics(), m)));
    rows.push_back(std::move(row));
  }
  std::string out = RenderTable(columns, rows, style);
  const std::vector<SweepGroup> groups = GroupsOf(axes, plan, jobs);
  if (groups.size() == jobs.size()) return out;
  columns.clear();
  rows.clear();
  for (const SweepAxis& axis : axes) {
    if (!IsRepetition(axis.path)) columns.push_back({OneLine(axis.name), Align::kRight});
  }
  columns.push_back({"JOBS", Align::kRight});
  columns.insert(columns.end(), of_metrics.begin(), of_metrics.end());
  for (const SweepGroup& group : groups) {
    std::vector<Cell> row;
    row.reserve(columns.size());
    for (const std::string& value : group.values) row.emplace_back(OneLine(value));
    const int64_t counted = group.valid.empty() ? 0 : group.valid.front().jobs;
    row.emplace_back(counted == group.jobs ? absl::StrCat(group.jobs) : absl::StrCat(counted, " of ", group.jobs));
    for (const Spread& spread : group.valid) row.emplace_back(Text(spread));
    for (const Spread& spread : group.test) row.emplace_back(Text(spread));
    rows.push_back(std::move(row));
  }
  return absl::StrCat(out, "\n", RenderTable(columns, rows, style));
}

std::string SweepToJson(const std::string& id, const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const std::vector<std::string>& warnings) {
  using nlohmann::json;
  const std::vector<v1::Metric> metrics = CommonMetrics(jobs);
  json out = {{"sweep", id}, {"jobs", json::array()}, {"groups", json::array()}};
  if (!warnings.empty()) out["warnings"] = warnings;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const v1::Job& job = jobs[j];
    json valid = json::object(), test = json::object();
    for (size_t m = 0; m < metrics.size(); ++m) {
      valid[MetricKey(metrics[m])] = NumberJson(ValueOf(job, job.result().best_valid_metrics(), m));
      test[MetricKey(metrics[m])] = NumberJson(ValueOf(job, job.result().best_test_metrics(), m));
    }
    const bool told = job.has_result();
    out["jobs"].push_back({{"name", job.name()},
                           {"state", EnumShortName(*v1::Job::State_descriptor(), job.state())},
                           {"error", job.error()},
                           {"values", ValuesJson(axes, plan[j].values, /*repetitions=*/true)},
                           {"bestEpoch", told ? json(job.result().best_epoch()) : json()},
                           {"trainSeconds", told ? NumberJson(job.result().train_seconds()) : json()},
                           {"valid", valid},
                           {"test", test}});
    if (!servers.empty()) out["jobs"].back()["server"] = servers[j];
  }
  for (const SweepGroup& group : GroupsOf(axes, plan, jobs)) {
    json valid = json::object(), test = json::object();
    for (size_t m = 0; m < metrics.size(); ++m) {
      valid[MetricKey(metrics[m])] = ToJson(group.valid[m]);
      test[MetricKey(metrics[m])] = ToJson(group.test[m]);
    }
    out["groups"].push_back({{"values", ValuesJson(axes, group.values, /*repetitions=*/false)},
                             {"jobs", group.jobs},
                             {"valid", valid},
                             {"test", test}});
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace permafrost::client
