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
  absl::StatusOr<spec::JobSpec> spec = SpecFromWire(*request, default_graph_cache_, LevelsOf(jobs_));
  if (!spec.ok()) return Reply(context, spec.status());
  const absl::StatusOr<graphcache::TorchRelease> release = TorchReleaseFromWire(request->torch_release());
  if (!release.ok()) return Reply(context, release.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.plans.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the census", *std::move(slot),
      [this, spec = *std::move(spec), release = *release, context, response]() -> absl::Status {
        PF_ASSIGN_OR_RETURN(const graphcache::Census census,
                            jobs_.TakeGraphCacheCensus(spec, release, [context] { return !context->IsCancelled(); }));
        *response = CensusToWire(census);
        return absl::OkStatus();
      });
}

}  // namespace permafrost::api
