// WorkerService runs ranks of jobs that other servers lead. Borrows all arguments.
// Threads: gRPC's threads, and one for each rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "base/change_hub.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/worker.grpc.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

struct WorkerFacts {
  std::string version, torch_version, device;  // the leader must have the same values
  std::string instance;                        // the leader must have another value
};

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(WorkerFacts facts, const spec::PolicyOptions& default_graph_cache, jobs::JobManager& jobs,
                StreamSet& streams, CallLimits& limits)
      : facts_(std::move(facts)),
        default_graph_cache_(default_graph_cache),
        jobs_(jobs),
        streams_(streams),
        limits_(limits) {}

  grpc::ServerWriteReactor<v1::RunRankResponse>* RunRank(grpc::CallbackServerContext* context,
                                                         const v1::RunRankRequest* request) override;

 private:
  absl::StatusOr<jobs::RankRequest> Read(const v1::RunRankRequest& request, const std::string& peer) const;

  const WorkerFacts facts_;
  const spec::PolicyOptions default_graph_cache_;
  jobs::JobManager& jobs_;
  StreamSet& streams_;
  CallLimits& limits_;
  ChangeHub hub_;
  std::atomic<uint64_t> ranks_ = 0;  // ranks begun so far; each new count is a rank's key in the hub
};

}  // namespace permafrost::api
