#include "api/plan_service.h"

#include <utility>

#include "api/convert_job.h"
#include "api/convert_plan.h"
#include "api/threaded_call.h"
#include "api/unary.h"
#include "base/status.h"

namespace permafrost::api {

grpc::ServerUnaryReactor* PlanService::PlanGraphCache(grpc::CallbackServerContext* context,
                                                      const v1::PlanGraphCacheRequest* request,
                                                      v1::PlanGraphCacheResponse* response) {
  absl::StatusOr<spec::JobSpec> spec = SpecFromWire(*request, default_graph_cache_, LevelsOf(jobs_));
  if (!spec.ok()) return Reply(context, spec.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.plans.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the plan", *std::move(slot),
      [this, spec = *std::move(spec), measure = !request->without_costs(), context, response]() -> absl::Status {
        PF_ASSIGN_OR_RETURN(const graphcache::CachePlan plan,
                            jobs_.PlanGraphCache(spec, measure, [context] { return !context->IsCancelled(); }));
        *response = CachePlanToWire(plan);
        return absl::OkStatus();
      });
}

}  // namespace permafrost::api
