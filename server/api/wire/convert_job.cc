#include "api/wire/convert_job.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/wire/convert_graph_cache.h"
#include "api/wire/resource_name.h"
#include "api/wire/status.h"
#include "api/wire/wire_fields.h"
#include "api/wire/wire_values.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using JobStates = WireEnum<v1::Job::State, jobs::kJobStateNames>;
using Architectures = WireEnum<v1::ModelSpec::Architecture, spec::kArchitectureNames>;
using Artifacts = WireEnum<v1::ExportJobRequest::Artifact, jobs::kArtifactNames>;

// Guesses the level of an unknown dataset. If the architecture is for graphs only, the level is kGraph. Otherwise
// other fields of the spec may imply the level. If they do not, the level is the first that the architecture
// supported.
spec::ModelLevel GuessLevel(const v1::JobSpec& wire) {
  const auto architecture = Architectures::FromWire(wire.model().architecture());
  if (architecture && !spec::TraitsOf(*architecture).of_nodes) return spec::ModelLevel::kGraph;
  // KIND_BUDGET applies to sampled blocks too.
  const bool bounds_blocks = wire.batching().kind() == v1::Batching::KIND_BUDGET && wire.has_neighbor_sampling();
  if ((wire.has_batching() && !bounds_blocks) || wire.has_cross_validation()) return spec::ModelLevel::kGraph;
  if (wire.has_neighbor_sampling() || wire.has_link_prediction() || wire.has_node2vec() ||
      wire.model().edge_inputs() != 0) {
    return spec::ModelLevel::kNode;
  }
  return architecture ? spec::FirstLevelOf(*architecture) : spec::ModelLevel::kGraph;
}

// Sets the defaults that depend on other fields of the request.
void SetDefaults(const v1::JobSpec& wire, const std::optional<jobs::DatasetTraits>& dataset,
                 const spec::PolicyOptions& graph_cache, spec::TrainOptions& train) {
  train = spec::DefaultOptions(dataset ? dataset->level : GuessLevel(wire));
  const int hops = wire.neighbor_sampling().fan_outs_size();
  const bool is_program =
      !wire.model().program().empty() || wire.model().architecture() == v1::ModelSpec::ARCHITECTURE_PROGRAM;
  // The number of hops sets num_layers, except for a program, which has its own layers.
  if (train.model.level == spec::ModelLevel::kNode && hops > 0 && !is_program) train.model.num_layers = hops;
  if (wire.model().architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC) spec::SetNode2VecDefaults(train);
  if (is_program) train.model.architecture = spec::Architecture::kProgram;
  if (wire.has_link_prediction()) {
    train.links.enabled = true;
    train.links.given = dataset && dataset->gives_links;
    train.loss = spec::Loss::kBce;
  }
  // With BUDGET, batch_size by default does not bound the number of graphs in a batch. For sampled blocks, batch_size
  // is still the number of seeds.
  if (wire.batching().kind() == v1::Batching::KIND_BUDGET && train.model.level == spec::ModelLevel::kGraph) {
    train.batch_size = spec::kMaxBatchSize;
  }
  train.graph_cache = graph_cache;
}

// Refuses a field that is set to its default and has no meaning for the job. The domain cannot tell such a field from
// an unset one.
void CheckGiven(const v1::JobSpec& wire, const spec::TrainOptions& train, Violations& violations) {
  const std::string refusal = spec::RefusalOf(spec::Need::kDrawnLinks, train);
  for (const auto& [given, field] : {std::pair(wire.link_prediction().has_valid_part(), "valid_part"),
                                     std::pair(wire.link_prediction().has_test_part(), "test_part")}) {
    if (train.links.given && given) violations.Add(absl::StrCat("spec.link_prediction.", field), refusal);
  }
  if (wire.has_node2vec() && !spec::Walks(train)) {
    violations.Add("spec.node2vec",
                   absl::StrCat("is given for ", AbslView(spec::kArchitectureNames.Name(train.model.architecture)),
                                "; accepted: for architecture node2vec"));
  }
}

spec::JobSpec SpecFromWire(const v1::JobSpec& wire, const spec::PolicyOptions& default_graph_cache,
                           const LevelOf& level_of, Violations& violations) {
  spec::JobSpec spec;
  spec::TrainOptions& train = spec.train;
  const auto dataset = ParseDatasetName("spec.dataset", wire.dataset());
  if (!dataset.ok()) violations.AddMissing(dataset.status());
  const auto known = dataset.ok() && level_of ? level_of(*dataset) : std::nullopt;
  SetDefaults(wire, known, default_graph_cache, train);
  WireReader(wire, "spec.", violations).Read(spec);
  // Without features, batch norm would see equal rows, so nodes start with degrees. The job stores this choice,
  // because jobs of older servers made none.
  if (train.model.node_inputs == spec::NodeInputs::kAuto && known && known->bare_nodes) {
    train.model.node_inputs = spec::NodeInputs::kDegree;
  }
  train.graph_cache = WithPolicyDefaults(wire.graph_cache(), default_graph_cache, train.graph_cache);
  CheckGiven(wire, train, violations);
  return spec;
}

}  // namespace

void SpecToWire(const spec::JobSpec& spec, v1::JobSpec& wire) {
  const spec::TrainOptions& train = spec.train;
  WireWriter(wire, train).Write(spec);
  if (!train.init_from.given()) wire.clear_init_from();
  if (train.init_from.job.empty() && wire.has_init_from()) wire.mutable_init_from()->clear_weights();
  if (train.cross_validation.folds == 0) wire.clear_cross_validation();
  if (!train.links.enabled) wire.clear_link_prediction();
  if (!spec::Walks(train)) wire.clear_node2vec();
  const bool of_nodes = train.model.level == spec::ModelLevel::kNode;
  if (!of_nodes) wire.clear_neighbor_sampling();
  if (of_nodes && train.batching == spec::BatchingOptions()) wire.clear_batching();
}

namespace {

// Writes the job's state changes, its time on the device, and, if it is FAILED, its error.
void LifeToWire(const jobs::Job& job, v1::Job& wire) {
  for (const jobs::StateChange& change : job.history.changes) {
    v1::StateChange& out = *wire.add_state_changes();
    out.set_state(JobStates::ToWire(change.state));
    SetTime(change.time, [&out] { return out.mutable_time(); });
    out.set_reason(ValidUtf8(change.reason));
    out.set_message(ValidUtf8(change.message));
  }
  wire.set_dropped_state_changes(job.history.dropped);
  SetDuration(job.device_time, [&wire] { return wire.mutable_device_time(); });
  wire.set_error(ValidUtf8(job.error));
  if (const absl::Status error = jobs::ErrorOf(job); !error.ok()) SetRpcStatus(error, *wire.mutable_error_status());
}

void ProgressToWire(const train::Progress& progress, v1::Progress& wire) { WireWriter(wire).Write(progress); }

// `metrics` are the metrics that the job's evaluations report, in order (spec::MetricsOf).
void EpochToWire(const train::EpochMetrics& epoch, const std::vector<spec::Metric>& metrics, v1::EpochMetrics& wire) {
  WireWriter(wire).Write(epoch);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, epoch.valid_metrics, epoch.valid_metric, *wire.mutable_valid_metrics());
}

void ResultToWire(const train::RunResult& result, const std::vector<spec::Metric>& metrics, v1::JobResult& wire) {
  WireWriter(wire).Write(result);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, result.best_valid_metrics, result.best_valid_metric, *wire.mutable_best_valid_metrics());
  MetricsToWire(metrics, result.best_test_metrics, result.best_test_metric, *wire.mutable_best_test_metrics());
  MetricsToWire(metrics, result.final_test_metrics, result.final_test_metric, *wire.mutable_final_test_metrics());
}

}  // namespace

absl::StatusOr<jobs::CreateRequest> CreateRequestFromWire(const v1::CreateJobRequest& wire,
                                                          const spec::PolicyOptions& default_graph_cache,
                                                          const LevelOf& level_of) {
  Violations violations;
  jobs::CreateRequest request;
  request.id = JobId(wire.job_id());
  request.request_id = wire.request_id();
  request.validate_only = wire.validate_only();
  request.labels = LabelsFromWire(wire.labels());
  if (wire.has_spec()) {
    request.spec = SpecFromWire(wire.spec(), default_graph_cache, level_of, violations);
  } else {
    violations.Add("spec", "is missing; accepted: a JobSpec with at least its dataset");
  }
  // A request that the domain cannot represent never gets to the job manager. So the manager's checks run here, too:
  // the answer then lists every bad field.
  if (!violations.empty() && wire.has_spec()) violations.AddMissing(jobs::CheckRequest(request));
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::Job JobToWire(const jobs::Job& job) {
  v1::Job wire;
  wire.set_name(FormatJobName(job.id));
  SpecToWire(job.spec, *wire.mutable_spec());
  wire.mutable_labels()->insert(job.labels.begin(), job.labels.end());
  wire.set_etag(jobs::EtagOf(job));
  wire.set_state(JobStates::ToWire(job.state));
  wire.set_pausing(job.pausing);
  SetTime(job.create_time, [&wire] { return wire.mutable_create_time(); });
  SetTime(job.start_time, [&wire] { return wire.mutable_start_time(); });
  SetTime(job.end_time, [&wire] { return wire.mutable_end_time(); });
  LifeToWire(job, wire);
  ProgressToWire(job.progress, *wire.mutable_progress());
  const std::vector<spec::Metric> metrics = spec::MetricsOf(job.spec.train);
  for (const train::EpochMetrics& epoch : job.epochs) EpochToWire(epoch, metrics, *wire.add_epochs());
  if (job.result) ResultToWire(*job.result, metrics, *wire.mutable_result());
  wire.set_resumes(job.resumes);
  for (const std::string& note : job.notes) wire.add_notes(ValidUtf8(note));
  wire.set_last_error(ValidUtf8(job.trouble.error));
  SetTime(job.trouble.retry_time, [&wire] { return wire.mutable_retry_time(); });
  return wire;
}

std::vector<jobs::JobState> JobStatesFromWire(const v1::ListJobsRequest& wire, Violations& violations) {
  std::vector<jobs::JobState> states;
  // The size is checked before the loop, because a request can hold a million entries.
  if (static_cast<std::size_t>(wire.states_size()) > JobStates::size()) {
    violations.Add("states", absl::StrCat("has ", wire.states_size(), " entries; accepted: at most the ",
                                          JobStates::size(), " states there are, each once"));
    return states;
  }
  for (int i = 0; i < wire.states_size(); ++i) {
    if (const auto state = JobStates::FromWire(wire.states(i))) {
      states.push_back(*state);
    } else {
      const int number = static_cast<int>(wire.states(i));
      violations.Add(absl::StrCat("states[", i, "]"),
                     absl::StrCat(number, " is no state; accepted: ", JobStates::Accepted()));
    }
  }
  return states;
}

jobs::Artifact ArtifactFromWire(int artifact, Violations& violations) {
  jobs::Artifact out = jobs::Artifact::kBestWeights;
  Artifacts::Read(artifact, "artifact", out, violations);
  return out;
}

namespace {

// The limits of google.protobuf.Duration and Timestamp.
constexpr int64_t kMaxDurationSeconds = 315'576'000'000;
constexpr int64_t kMinTimestampSeconds = -62'135'596'800;
constexpr int64_t kMaxTimestampSeconds = 253'402'300'799;
constexpr int32_t kMaxNanos = 999'999'999;

}  // namespace

absl::Duration DurationFromWire(const google::protobuf::Duration& wire, std::string_view field,
                                Violations& violations) {
  const int64_t seconds = wire.seconds();
  const int32_t nanos = wire.nanos();
  // Negative durations pass here; the checks of the job refuse them.
  if (seconds < -kMaxDurationSeconds || seconds > kMaxDurationSeconds || nanos < -kMaxNanos || nanos > kMaxNanos) {
    violations.Add(field,
                   absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Duration; accepted: at most ",
                                kMaxDurationSeconds, " s"));
    return absl::InfiniteDuration();
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

absl::Time TimeFromWire(const google::protobuf::Timestamp& wire, std::string_view field, Violations& violations) {
  const int64_t seconds = wire.seconds();
  const int32_t nanos = wire.nanos();
  if (seconds < kMinTimestampSeconds || seconds > kMaxTimestampSeconds || nanos < 0 || nanos > kMaxNanos) {
    violations.Add(field, absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Timestamp"));
    return absl::InfiniteFuture();
  }
  return absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanos);
}

namespace {

constexpr std::string_view kLabelsPath = "labels", kPriorityPath = "spec.priority";
constexpr std::string_view kMaxRuntimePath = "spec.max_runtime", kDeadlinePath = "spec.deadline";

absl::Duration ReadMaxRuntime(const v1::Job& job, Violations& violations) {
  if (!job.spec().has_max_runtime()) return absl::InfiniteDuration();
  return DurationFromWire(job.spec().max_runtime(), "job.spec.max_runtime", violations);
}

absl::Time ReadDeadline(const v1::Job& job, Violations& violations) {
  if (!job.spec().has_deadline()) return absl::InfiniteFuture();
  return TimeFromWire(job.spec().deadline(), "job.spec.deadline", violations);
}

// Reads the field at `path` into `update`. Returns false for an unknown path.
bool ReadPath(std::string_view path, const v1::Job& job, jobs::JobUpdate& update, Violations& violations) {
  if (path == kLabelsPath) {
    update.labels = LabelsFromWire(job.labels());
  } else if (path == kPriorityPath) {
    update.priority = job.spec().priority();
  } else if (path == kMaxRuntimePath) {
    update.max_runtime = ReadMaxRuntime(job, violations);
  } else if (path == kDeadlinePath) {
    update.deadline = ReadDeadline(job, violations);
  } else if (path.starts_with(kLabelsPath) && path.substr(kLabelsPath.size()).starts_with('.')) {
    const std::string key(path.substr(kLabelsPath.size() + 1));
    if (!jobs::IsLabelKey(key)) return false;
    const auto label = job.labels().find(key);
    auto& change = update.label_changes[key];
    if (label != job.labels().end()) change = label->second;
  } else {
    return false;
  }
  return true;
}

}  // namespace

jobs::Labels LabelsFromWire(const google::protobuf::Map<std::string, std::string>& wire) {
  return {wire.begin(), wire.end()};
}

absl::StatusOr<jobs::JobUpdate> UpdateFromWire(const v1::UpdateJobRequest& wire) {
  jobs::JobUpdate update;
  update.etag = wire.job().etag();
  Violations violations;
  for (int i = 0; i < wire.update_mask().paths_size(); ++i) {
    const std::string& path = wire.update_mask().paths(i);
    if (ReadPath(path, wire.job(), update, violations)) continue;
    violations.Add(absl::StrCat("update_mask.paths[", i, "]"),
                   absl::StrCat("\"", absl::CHexEscape(path.substr(0, 96)),
                                "\" cannot be updated; accepted: labels, labels.KEY, spec.priority, spec.max_runtime, "
                                "spec.deadline"));
  }
  if (wire.update_mask().paths().empty()) {
    if (!wire.job().labels().empty()) update.labels = LabelsFromWire(wire.job().labels());
    if (wire.job().spec().priority() != 0) update.priority = wire.job().spec().priority();
    if (wire.job().spec().has_max_runtime()) update.max_runtime = ReadMaxRuntime(wire.job(), violations);
    if (wire.job().spec().has_deadline()) update.deadline = ReadDeadline(wire.job(), violations);
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return update;
}

v1::Checkpoint CheckpointToWire(const train::CheckpointInfo& info) {
  v1::Checkpoint wire;
  wire.set_step(info.step);
  wire.set_state(info.damage.empty() ? v1::Checkpoint::STATE_COMPLETE : v1::Checkpoint::STATE_DAMAGED);
  // `epochs_done` includes an epoch only once the epoch has been evaluated, which is some time after its last step.
  wire.set_epoch(info.batch > 0 || info.epochs_done == 0 ? info.epochs_done + 1 : info.epochs_done);
  wire.set_batch(info.batch);
  wire.set_best_epoch(info.best_epoch);
  SetTime(info.time, [&wire] { return wire.mutable_create_time(); });
  wire.set_total_bytes(static_cast<int64_t>(info.bytes));
  wire.set_error(ValidUtf8(info.damage));
  return wire;
}

namespace {

using Metrics = WireEnum<v1::Metric, spec::kMetricNames>;

}  // namespace

v1::Metric MetricToWire(spec::Metric metric) { return Metrics::ToWire(metric); }

std::vector<spec::Metric> MetricsFromWire(const google::protobuf::RepeatedField<int>& wire, std::string_view field,
                                          Violations& violations) {
  std::vector<spec::Metric> metrics;
  // The size is checked before the loop, because a request can hold a million entries.
  if (static_cast<std::size_t>(wire.size()) > Metrics::size()) {
    violations.Add(field, absl::StrCat("has ", wire.size(), " entries; accepted: at most the ", Metrics::size(),
                                       " metrics there are, each once"));
    return metrics;
  }
  for (int i = 0; i < wire.size(); ++i) {
    if (const auto metric = Metrics::FromWire(wire[i])) {
      metrics.push_back(*metric);
    } else {
      violations.Add(absl::StrCat(AbslView(field), "[", i, "]"),
                     absl::StrCat(wire[i], " is no metric; accepted: ", Metrics::Accepted()));
    }
  }
  return metrics;
}

void MetricsToWire(const std::vector<spec::Metric>& metrics, const std::vector<double>& values, double first,
                   google::protobuf::RepeatedPtrField<v1::MetricValue>& wire) {
  for (size_t i = 0; i < std::max<size_t>(1, std::min(metrics.size(), values.size())); ++i) {
    v1::MetricValue& value = *wire.Add();
    value.set_metric(Metrics::ToWire(metrics[i]));
    value.set_value(values.empty() ? first : values[i]);
  }
}

}  // namespace permafrost::api
