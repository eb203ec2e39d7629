// The shapes of every batch that a job plans to run: they are known before its first step, since sampling is seeded.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "data/batching/batch.h"
#include "graphcache/shape_plan.h"

namespace permafrost::train {

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  // Longer training schedules are not walked; their ceiling is the proven bound. 2 million batches of 32 take 0.7
  // seconds.
  int64_t max_batches = 2'000'000;
};

// Training over all epochs; evaluation of the validation split after each, and of the test split twice at the end.
graphcache::ShapePlan PlanShapes(const data::Batcher& batcher, const ScheduleOptions& options);

}  // namespace permafrost::train
