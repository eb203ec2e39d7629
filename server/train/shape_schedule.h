// The shapes of every batch that a job plans to run: they are known before its first step, since sampling is seeded.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <stop_token>

#include "absl/status/statusor.h"
#include "data/batching/batch.h"
#include "graphcache/shape_plan.h"
#include "train/batch_schedule.h"

namespace permafrost::train {

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  spec::BatchingOptions batching;
  // If a training schedule is beyond them, only its beginning is walked, and its ceiling is the proven bound.
  WalkLimits limits;
};

// Training over all epochs; evaluation of the validation split after each, and of the test split at the end, twice at
// most.
// Errors: Cancelled soon after a stop is requested.
absl::StatusOr<graphcache::ShapePlan> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                 const std::stop_token& stop);

}  // namespace permafrost::train
