// Requests to JobManager, and its answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "jobs/job.h"
#include "spec/job_spec.h"
#include "spec/loss.h"
#include "train/runner.h"

namespace permafrost::jobs {

struct CreateRequest {
  JobId id;  // empty: the manager makes one
  std::string request_id;
  // A hash of everything that the call asked for, as its client wrote it. A later call with an equal hash counts as
  // the same call, even if defaults have changed since. If `asked` is empty, calls are compared by `spec`.
  std::string asked;
  spec::JobSpec spec;
  Labels labels;
  bool validate_only = false;
};

// Makes the checks of JobManager::Create for which the request alone is enough. Errors: InvalidArgument with a
// violation for each bad field.
absl::Status CheckRequest(const CreateRequest& request);
// Checks that a request_id is valid. Errors: InvalidArgument with a violation of request_id.
absl::Status CheckRequestId(const std::string& request_id);

// The job that an earlier CreateJob with the same request_id made.
struct CreatedBefore {
  Job job;            // as it is now
  bool same = false;  // true if `asked` is equal; if false, Create must compare the specs
};

// Selects and orders the jobs of a list.
struct JobQuery {
  std::vector<JobState> states;  // empty: all
  std::string filter;            // see job_list.h; empty: all
};

// Changes to a job. A field that is not set leaves the job's value as it is.
struct JobUpdate {
  std::optional<Labels> labels;                                     // replace all labels
  std::map<std::string, std::optional<std::string>> label_changes;  // applied after `labels`; nullopt removes the label
  std::optional<int32_t> priority;
  std::optional<absl::Duration> max_runtime;  // infinite: no limit
  std::optional<absl::Time> deadline;         // InfiniteFuture: no deadline
  std::string etag;                           // if not empty, the job must still have this etag
};

struct JobPage {
  // With a filter, a page may hold fewer jobs than requested, although more jobs follow.
  std::vector<Job> jobs;
  std::string next_page_token;  // empty on the last page
};

struct LogChunk {
  std::string data;
  int64_t next_offset = 0;
  // True if the read reached the present end.
  bool at_end = false;
  // True if nothing will be written after next_offset, because the job had ended before the read, and the read
  // reached the end.
  bool complete = false;
};

enum class Artifact { kBestWeights, kLastWeights, kTestPredictions };
inline constexpr EnumNames<Artifact, 3> kArtifactNames{{{{Artifact::kBestWeights, "best-weights"},
                                                         {Artifact::kLastWeights, "last-weights"},
                                                         {Artifact::kTestPredictions, "test-predictions"}}}};

// The reason of the error that is returned while the device has a job or a rank.
inline constexpr std::string_view kDeviceBusyReason = "DEVICE_BUSY";

// A request to JobManager::RunRank.
struct RankRequest {
  std::string job;  // the job's id at its leader
  spec::TrainOptions options;
  std::string dataset_checksum;  // data::ContentChecksumOf the leader's dataset, in hex
  train::RankPlace place;
  bool validate_only = false;  // only checks whether the rank would be taken now
};

// Called with the progress of a rank. Returns whether the rank shall go on.
using OnRankProgress = std::function<bool(const train::RankProgress& progress)>;

// A request to JobManager::Evaluate.
struct EvaluationRequest {
  JobId job;
  DatasetId dataset;  // empty: the dataset of the job
  // If unset, the default depends on the job: kAll for a job on walks, and kTest for a job on links. For any other
  // job, it is kTest on the job's own dataset, and kAll on another dataset.
  std::optional<train::EvaluatedRows> rows;
  spec::JobWeights weights = spec::JobWeights::kBest;
  std::optional<int64_t> checkpoint_step;  // if set, the weights of this checkpoint
  std::vector<spec::Metric> metrics;       // empty: the metrics of the job
  bool predictions = false;
  bool allow_unknown_categories = false;  // see train::EvaluateRequest
};

// The result of an evaluation, with the values that were chosen for unset fields of the request.
struct JobEvaluation {
  DatasetId dataset;
  train::EvaluatedRows rows = train::EvaluatedRows::kTest;
  std::vector<spec::Metric> metrics;
  train::RowsEvaluation result;
};

}  // namespace permafrost::jobs
