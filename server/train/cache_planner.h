// The plan of a job's graph cache, made before the job is.
// Threads: the device thread where it measures, else any.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "graphcache/cache_plan.h"
#include "train/job_plan.h"
#include "train/runner.h"

namespace permafrost::train {

// As Runner::PlanCache, but for the check of the options.
absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
