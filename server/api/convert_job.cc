#include "api/convert_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/convert_graph_cache.h"
#include "api/convert_job_life.h"
#include "api/convert_job_verbs.h"
#include "api/convert_metrics.h"
#include "api/convert_progress.h"
#include "api/convert_time.h"
#include "api/resource_name.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "api/wire_fields.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using JobStates = WireEnum<v1::Job::State, jobs::kJobStateNames>;
using Architectures = WireEnum<v1::ModelSpec::Architecture, spec::kArchitectureNames>;
using Artifacts = WireEnum<v1::ExportJobRequest::Artifact, jobs::kArtifactNames>;

// Guesses for a dataset that is not known: the level of a model that has one alone, what else the spec says, or the
// level that the model had first.
spec::ModelLevel GuessLevel(const v1::JobSpec& wire) {
  const auto architecture = Architectures::FromWire(wire.model().architecture());
  if (architecture && !spec::TraitsOf(*architecture).of_nodes) return spec::ModelLevel::kGraph;
  // A budget bounds sampled blocks, too.
  const bool bounds_blocks = wire.batching().kind() == v1::Batching::KIND_BUDGET && wire.has_neighbor_sampling();
  if ((wire.has_batching() && !bounds_blocks) || wire.has_cross_validation()) return spec::ModelLevel::kGraph;
  if (wire.has_neighbor_sampling() || wire.has_link_prediction() || wire.has_node2vec() ||
      wire.model().edge_inputs() != 0) {
    return spec::ModelLevel::kNode;
  }
  return architecture ? spec::FirstLevelOf(*architecture) : spec::ModelLevel::kGraph;
}

// Sets the defaults that depend on what else the wire says.
void SetDefaults(const v1::JobSpec& wire, const std::optional<jobs::DatasetTraits>& dataset,
                 const spec::PolicyOptions& graph_cache, spec::TrainOptions& train) {
  train = spec::DefaultOptions(dataset ? dataset->level : GuessLevel(wire));
  const int hops = wire.neighbor_sampling().fan_outs_size();
  if (train.model.level == spec::ModelLevel::kNode && hops > 0) train.model.num_layers = hops;
  if (wire.model().architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC) spec::SetNode2VecDefaults(train);
  if (wire.has_link_prediction()) {
    train.links.enabled = true;
    train.links.given = dataset && dataset->gives_links;
    train.loss = spec::Loss::kBce;
  }
  // A budget alone says how many graphs meet. It does not say how many seeds sampled blocks have.
  if (wire.batching().kind() == v1::Batching::KIND_BUDGET && train.model.level == spec::ModelLevel::kGraph) {
    train.batch_size = spec::kMaxBatchSize;
  }
  train.graph_cache = graph_cache;
}

// Refuses what the domain would not see: a field that has its default, where it means nothing.
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
  // Rows that are all alike would be what batch norm sees. The job says so, since those of older servers have none.
  if (train.model.node_inputs == spec::NodeInputs::kAuto && known && known->bare_nodes) {
    train.model.node_inputs = spec::NodeInputs::kDegree;
  }
  train.graph_cache = WithPolicyDefaults(wire.graph_cache(), default_graph_cache, train.graph_cache);
  CheckGiven(wire, train, violations);
  return spec;
}

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
  // A request that says something is the job manager's to check. One that cannot be read never gets there: what it
  // would find is told here too, so that the answer has every bad field.
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
  // Before the loop: a request has room for a million of them.
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

}  // namespace permafrost::api
