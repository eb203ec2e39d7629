// Plans on the wire.
// Threads: pure functions.
#pragma once

#include "graphcache/cache_plan.h"
#include "permafrost/v1/plan.pb.h"

namespace permafrost::api {

void ScheduleToWire(const graphcache::PlannedSchedule& schedule, v1::BatchSchedule& wire);
v1::PlanGraphCacheResponse CachePlanToWire(const graphcache::CachePlan& plan);

}  // namespace permafrost::api
