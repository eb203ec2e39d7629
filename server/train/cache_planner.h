// The plan of a job's graph cache, made before the job is.
// Threads: the device thread where it measures, else any.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "graphcache/cache_plan.h"
#include "train/job_plan.h"
#include "train/runner.h"
#include "train/task.h"

namespace permafrost::train {

// Nothing but the schedules of a plan and what follows from them: no rows, no costs.
absl::StatusOr<graphcache::CachePlan> PlanOf(const spec::TrainOptions& options, Task& task,
                                             std::string no_dynamic_reason, const std::function<bool()>& keep_going);

// As Runner::PlanCache, but for the check of the options.
absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
