// The services about graph caches. GraphCacheService reads the caches of jobs and passes commands to them.
// PlanService and CensusService predict what a job would need, without creating the job. Borrows the manager, the
// stream set and the limits.
// Threads: gRPC's threads. No handler waits for a training step. A command's call is answered on the thread on which
// the manager reports the command's outcome.
#pragma once

#include <string>

#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/plan.grpc.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

class GraphCacheService final : public v1::GraphCacheService::CallbackService {
 public:
  GraphCacheService(jobs::JobManager& jobs, StreamSet& streams, CallLimits& limits)
      : jobs_(jobs), streams_(streams), limits_(limits) {}

  grpc::ServerUnaryReactor* GetGraphCache(grpc::CallbackServerContext* context, const v1::GetGraphCacheRequest* request,
                                          v1::GraphCache* response) override;
  grpc::ServerUnaryReactor* ExplainGraphCache(grpc::CallbackServerContext* context,
                                              const v1::ExplainGraphCacheRequest* request,
                                              v1::ExplainGraphCacheResponse* response) override;
  grpc::ServerUnaryReactor* ListGraphCacheEntries(grpc::CallbackServerContext* context,
                                                  const v1::ListGraphCacheEntriesRequest* request,
                                                  v1::ListGraphCacheEntriesResponse* response) override;
  grpc::ServerUnaryReactor* UpdateGraphCachePolicy(grpc::CallbackServerContext* context,
                                                   const v1::UpdateGraphCachePolicyRequest* request,
                                                   v1::GraphCache* response) override;
  grpc::ServerUnaryReactor* FreezeGraphCache(grpc::CallbackServerContext* context,
                                             const v1::FreezeGraphCacheRequest* request,
                                             v1::GraphCache* response) override;
  grpc::ServerUnaryReactor* ThawGraphCache(grpc::CallbackServerContext* context,
                                           const v1::ThawGraphCacheRequest* request, v1::GraphCache* response) override;
  grpc::ServerUnaryReactor* ClearGraphCache(grpc::CallbackServerContext* context,
                                            const v1::ClearGraphCacheRequest* request,
                                            v1::GraphCache* response) override;
  grpc::ServerWriteReactor<v1::GraphCache>* WatchGraphCache(grpc::CallbackServerContext* context,
                                                            const v1::WatchGraphCacheRequest* request) override;

 private:
  // Starts a command without arguments: freeze, thaw or clear.
  template <class Request>
  grpc::ServerUnaryReactor* StartKind(grpc::CallbackServerContext* context, const Request& request,
                                      graphcache::CommandKind kind, v1::GraphCache* response);
  grpc::ServerUnaryReactor* StartCommand(grpc::CallbackServerContext* context, const JobId& job,
                                         const graphcache::Command& command, const std::string& request_id,
                                         v1::GraphCache* response);
  absl::Status Explain(const v1::ExplainGraphCacheRequest& request, v1::ExplainGraphCacheResponse& response);
  absl::Status Get(const v1::GetGraphCacheRequest& request, v1::GraphCache& response);
  absl::Status List(const v1::ListGraphCacheEntriesRequest& request, v1::ListGraphCacheEntriesResponse& response);

  jobs::JobManager& jobs_;
  StreamSet& streams_;
  CallLimits& limits_;
};

// PlanService predicts what a job's graph cache would need. Borrows all arguments.
// Threads: gRPC's threads, and one for each plan, because a plan walks a schedule and may wait for the device.
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

// CensusService predicts what a job would leave in libtorch's graph cache on MPS. Borrows all arguments.
// Threads: gRPC's threads, and one for each census, because a census runs steps.
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
