// Converts jobs between the wire and the domain: requests, states, progress, results and their metrics, updates,
// checkpoints.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/map.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/timestamp.pb.h"
#include "jobs/job.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"
#include "spec/loss.h"
#include "spec/policy.h"
#include "train/checkpoint_files.h"
#include "train/runner.h"

namespace permafrost::api {

// Returns the facts about a dataset that decide the defaults of jobs on it; nullopt if the dataset is unknown.
using LevelOf = std::function<std::optional<jobs::DatasetTraits>(const DatasetId& dataset)>;
inline LevelOf LevelsOf(const jobs::JobManager& jobs) {
  return [&jobs](const DatasetId& dataset) { return jobs.TraitsOf(dataset); };
}

// Returns `now_of`, changed for the dataset of the existing job `of`: the result describes that dataset as the job
// knew it. If `now_of` says that the dataset is gone or replaced, the facts come from the job's options.
inline LevelOf LevelsOf(LevelOf now_of, const jobs::Job& of) {
  const spec::TrainOptions& train = of.spec.train;
  const bool bare =
      train.model.level == spec::ModelLevel::kGraph && train.model.node_inputs == spec::NodeInputs::kDegree;
  return [now_of = std::move(now_of), dataset = train.dataset, uid = of.dataset_uid, made = of.create_time,
          told = jobs::DatasetTraits{.level = train.model.level, .gives_links = train.links.given, .bare_nodes = bare}](
             const DatasetId& id) {
    std::optional<jobs::DatasetTraits> now = now_of(id);
    if (id != dataset) return now;
    const bool is_the_same = now && (uid.empty() ? now->create_time <= made : now->uid == uid);
    if (!is_the_same) return std::optional(told);
    // Older servers gave bare nodes (nodes without features) no other inputs, so the job's own options decide.
    now->bare_nodes = now->bare_nodes && told.bare_nodes;
    return now;
  };
}

// Fills in defaults; `default_graph_cache` has the defaults of the graph cache. Errors: if the domain cannot
// represent the request, InvalidArgument with a violation for every bad field. Values out of range pass; the job
// manager refuses them.
absl::StatusOr<jobs::CreateRequest> CreateRequestFromWire(const v1::CreateJobRequest& wire,
                                                          const spec::PolicyOptions& default_graph_cache,
                                                          const LevelOf& level_of = {});
// Reads the spec of a request about a job that will not be created. Without a spec, all options have their defaults.
template <class Request>
absl::StatusOr<spec::JobSpec> SpecFromWire(const Request& wire, const spec::PolicyOptions& default_graph_cache,
                                           const LevelOf& level_of) {
  v1::CreateJobRequest create;
  if (wire.has_spec()) *create.mutable_spec() = wire.spec();
  absl::StatusOr<jobs::CreateRequest> job = CreateRequestFromWire(create, default_graph_cache, level_of);
  if (!job.ok()) return job.status();
  return std::move(job->spec);
}

// Writes the whole spec, except messages that have no meaning for the job.
void SpecToWire(const spec::JobSpec& spec, v1::JobSpec& wire);
v1::Job JobToWire(const jobs::Job& job);

// Adds a violation of `states[I]` for each unknown state. If the list has more entries than there are states, adds
// only a violation of `states`.
std::vector<jobs::JobState> JobStatesFromWire(const v1::ListJobsRequest& wire, Violations& violations);

// Adds a violation of `artifact` if the value is unknown.
jobs::Artifact ArtifactFromWire(int artifact, Violations& violations);

// Both functions return infinity and add a violation of `field` if protobuf's types do not allow the value.
absl::Duration DurationFromWire(const google::protobuf::Duration& wire, std::string_view field, Violations& violations);
absl::Time TimeFromWire(const google::protobuf::Timestamp& wire, std::string_view field, Violations& violations);

jobs::Labels LabelsFromWire(const google::protobuf::Map<std::string, std::string>& wire);

// Reads the fields that the mask names or, without a mask, the fields that are set in the request's job.
// Errors: InvalidArgument with a violation for each unknown path.
absl::StatusOr<jobs::JobUpdate> UpdateFromWire(const v1::UpdateJobRequest& wire);

v1::Checkpoint CheckpointToWire(const train::CheckpointInfo& info);

v1::Metric MetricToWire(spec::Metric metric);

// Adds a violation of `field` if the list is too long, and of each bad element.
std::vector<spec::Metric> MetricsFromWire(const google::protobuf::RepeatedField<int>& wire, std::string_view field,
                                          Violations& violations);

// Writes one value for each metric. If `values` is empty, because an older version ran the job, writes only `first`,
// for the first metric.
void MetricsToWire(const std::vector<spec::Metric>& metrics, const std::vector<double>& values, double first,
                   google::protobuf::RepeatedPtrField<v1::MetricValue>& wire);

}  // namespace permafrost::api
