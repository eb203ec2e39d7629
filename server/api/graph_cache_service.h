// GraphCacheService: the caches of jobs, and what clients tell them.
// Threads: gRPC's; no handler waits for a training step. A command is answered from whichever thread the manager tells
// its outcome on.
// Borrows the manager and the stream set.
#pragma once

#include "api/stream.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"

namespace permafrost::api {

class GraphCacheService final : public v1::GraphCacheService::CallbackService {
 public:
  GraphCacheService(jobs::JobManager& jobs, StreamSet& streams) : jobs_(jobs), streams_(streams) {}

  grpc::ServerUnaryReactor* GetGraphCache(grpc::CallbackServerContext* context, const v1::GetGraphCacheRequest* request,
                                          v1::GraphCache* response) override;
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
  absl::Status Get(const v1::GetGraphCacheRequest& request, v1::GraphCache& response);
  absl::Status List(const v1::ListGraphCacheEntriesRequest& request, v1::ListGraphCacheEntriesResponse& response);

  jobs::JobManager& jobs_;
  StreamSet& streams_;
};

}  // namespace permafrost::api
