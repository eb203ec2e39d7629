// Source of EvaluateJob: a thread makes the pass; then its result is sent, and its predictions in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "api/server_stream.h"
#include "api/stream_work.h"
#include "base/change_hub.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// Every field that is wrong in one answer. Errors: InvalidArgument.
absl::StatusOr<jobs::EvaluationRequest> EvaluationFromWire(const v1::EvaluateJobRequest& wire);
v1::JobEvaluation EvaluationToWire(const jobs::JobEvaluation& evaluation);

// Threads: as StreamSource; the thread starts in Subscribe, and is stopped and joined in the destructor.
class EvaluateSource final : public StreamSource<v1::EvaluateJobResponse> {
 public:
  // hub, key: as StreamWork. `jobs` outlives this.
  EvaluateSource(jobs::JobManager& jobs, jobs::EvaluationRequest request, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::EvaluateJobResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  Pull NextPiece(v1::EvaluateJobResponse& response);

  const bool predictions_;
  jobs::JobEvaluation evaluation_;  // written by the work, until its outcome
  bool told_ = false;               // the result
  std::optional<int64_t> sent_;     // rows done, as sent last
  std::optional<Stopwatch> since_sent_;
  size_t offset_ = 0;  // of the predictions
  StreamHash hash_;
  StreamWork work_;  // last: its thread ends first
};

}  // namespace permafrost::api
