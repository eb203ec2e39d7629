// Measures what steps and captures of a job take on its device, on batches of the job.
// Threads: the device thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "graphcache/cache_plan.h"
#include "spec/train_options.h"
#include "train/task.h"

namespace permafrost::train {

struct MeasuredCosts {
  graphcache::StepCosts costs;
  std::string no_dynamic_reason;  // found while the step was captured; empty: it is dynamic, or was known not to be
};

// Runs steps of `task`, whose weights change, at the shapes of `schedule`: a few captures and some replays of a typical
// batch and of the largest. Errors: FailedPrecondition with graphcache::kGraphBreakReason for a step that cannot be
// captured; Cancelled where `keep_going`, asked between two measurements, says so.
absl::StatusOr<MeasuredCosts> MeasureCosts(const spec::TrainOptions& options, Task& task,
                                           const device::Backend& backend, const graphcache::PlannedSchedule& schedule,
                                           const std::function<bool()>& keep_going);

}  // namespace permafrost::train
