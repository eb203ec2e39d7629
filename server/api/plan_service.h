// PlanService: what a job would need. A plan takes a thread of its own, since it walks a schedule and may wait for the
// device. Threads: gRPC's, and one a call. Borrows everything.
#pragma once

#include "api/call_limits.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/plan.grpc.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

class PlanService final : public v1::PlanService::CallbackService {
 public:
  PlanService(const spec::PolicyOptions& default_graph_cache, jobs::JobManager& jobs, CallLimits& limits)
      : default_graph_cache_(default_graph_cache), jobs_(jobs), limits_(limits) {}

  grpc::ServerUnaryReactor* PlanGraphCache(grpc::CallbackServerContext* context,
                                           const v1::PlanGraphCacheRequest* request,
                                           v1::PlanGraphCacheResponse* response) override;

 private:
  const spec::PolicyOptions default_graph_cache_;
  jobs::JobManager& jobs_;
  CallLimits& limits_;
};

}  // namespace permafrost::api
