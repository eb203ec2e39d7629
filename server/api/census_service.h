// CensusService: what a job would leave in the graph cache of MPS. A census takes a thread of its own, since it runs
// steps.
// Threads: gRPC's, and one a call. Borrows everything.
#pragma once

#include "api/call_limits.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

class CensusService final : public v1::CensusService::CallbackService {
 public:
  CensusService(const spec::PolicyOptions& default_graph_cache, jobs::JobManager& jobs, CallLimits& limits)
      : default_graph_cache_(default_graph_cache), jobs_(jobs), limits_(limits) {}

  grpc::ServerUnaryReactor* CensusGraphCache(grpc::CallbackServerContext* context,
                                             const v1::CensusGraphCacheRequest* request,
                                             v1::CensusGraphCacheResponse* response) override;

 private:
  const spec::PolicyOptions default_graph_cache_;
  jobs::JobManager& jobs_;
  CallLimits& limits_;
};

}  // namespace permafrost::api
