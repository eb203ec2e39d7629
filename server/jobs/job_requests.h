// Requests to the manager of jobs, and its answers.
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
  JobId id;  // empty: one is made
  std::string request_id;
  // A hash of everything that the call asked for, as its client wrote it. A later call with the same text is the same
  // call, even if defaults have changed what the text means. Empty: `spec` alone tells.
  std::string asked;
  spec::JobSpec spec;
  Labels labels;
  bool validate_only = false;
};

// Refuses what JobManager::Create refuses for the request alone. Errors: InvalidArgument with a violation for each bad
// field.
absl::Status CheckRequest(const CreateRequest& request);
// Refuses a request_id that every call refuses. Errors: InvalidArgument with a violation of it.
absl::Status CheckRequestId(const std::string& request_id);

// The job that a CreateJob made when it came before.
struct CreatedBefore {
  Job job;            // as it is now
  bool same = false;  // true: `asked` is equal; false: Create compares the specs
};

// Selects and orders the jobs of a list.
struct JobQuery {
  std::vector<JobState> states;  // empty: all
  std::string filter;            // job_list.h; empty: all
};

// Changes of a job; what is not set stays.
struct JobUpdate {
  std::optional<Labels> labels;                                     // in place of all
  std::map<std::string, std::optional<std::string>> label_changes;  // after `labels`; nullopt: the label goes
  std::optional<int32_t> priority;
  std::optional<absl::Duration> max_runtime;  // infinite: no limit
  std::optional<absl::Time> deadline;         // InfiniteFuture: none
  std::string etag;                           // not empty: the job must still have it
};

struct JobPage {
  // With a filter they may be fewer than asked for although more follow.
  std::vector<Job> jobs;
  std::string next_page_token;  // empty: the last page
};

struct LogChunk {
  std::string data;
  int64_t next_offset = 0;
  // The read reached the present end.
  bool at_end = false;
  // Nothing will be written after next_offset: the job was terminal before the read and the read reached the end.
  bool complete = false;
};

enum class Artifact { kBestWeights, kLastWeights, kTestPredictions };
inline constexpr EnumNames<Artifact, 3> kArtifactNames{{{{Artifact::kBestWeights, "best-weights"},
                                                         {Artifact::kLastWeights, "last-weights"},
                                                         {Artifact::kTestPredictions, "test-predictions"}}}};

// The reason of an error that says that the device has a job or a rank already.
inline constexpr std::string_view kDeviceBusyReason = "DEVICE_BUSY";

// A request to JobManager::RunRank.
struct RankRequest {
  std::string job;  // as its leader names it
  spec::TrainOptions options;
  std::string dataset_checksum;  // data::ContentChecksumOf the leader's dataset, as hex digits
  train::RankPlace place;
  bool validate_only = false;  // tells whether the rank would be taken now, and takes nothing
};

// Hears what a rank has done, and returns whether to go on.
using OnRankProgress = std::function<bool(const train::RankProgress& progress)>;

// A request to JobManager::Evaluate.
struct EvaluationRequest {
  JobId job;
  DatasetId dataset;                         // empty: the job's
  std::optional<train::EvaluatedRows> rows;  // of the job's dataset kTest, else kAll
  spec::JobWeights weights = spec::JobWeights::kBest;
  std::optional<int64_t> checkpoint_step;  // the weights of this checkpoint instead
  std::vector<spec::Metric> metrics;       // empty: the job's
  bool predictions = false;
  bool allow_unknown_categories = false;  // train::EvaluateRequest
};

// The request with what it left open, and what came of it.
struct JobEvaluation {
  DatasetId dataset;
  train::EvaluatedRows rows = train::EvaluatedRows::kTest;
  std::vector<spec::Metric> metrics;
  train::RowsEvaluation result;
};

}  // namespace permafrost::jobs
