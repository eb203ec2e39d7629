#include "api/census_service.h"

#include <utility>

#include "api/convert_census.h"
#include "api/convert_job.h"
#include "api/threaded_call.h"
#include "api/unary.h"
#include "base/status.h"

namespace permafrost::api {

grpc::ServerUnaryReactor* CensusService::CensusGraphCache(grpc::CallbackServerContext* context,
                                                          const v1::CensusGraphCacheRequest* request,
                                                          v1::CensusGraphCacheResponse* response) {
  // As a job that is only to be checked.
  v1::CreateJobRequest create;
  if (request->has_spec()) *create.mutable_spec() = request->spec();
  absl::StatusOr<jobs::CreateRequest> job = CreateRequestFromWire(create, default_graph_cache_);
  if (!job.ok()) return Reply(context, job.status());
  const absl::StatusOr<graphcache::TorchRelease> release = TorchReleaseFromWire(request->torch_release());
  if (!release.ok()) return Reply(context, release.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.plans.Take();
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall("the census", *std::move(slot),
                           [this, spec = std::move(job->spec), release = *release, response]() -> absl::Status {
                             PF_ASSIGN_OR_RETURN(const graphcache::Census census,
                                                 jobs_.TakeGraphCacheCensus(spec, release));
                             *response = CensusToWire(census);
                             return absl::OkStatus();
                           });
}

}  // namespace permafrost::api
