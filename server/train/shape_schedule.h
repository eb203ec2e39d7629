// The shapes of every batch that a job plans to run: they are known before its first step, since sampling is seeded.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <stop_token>

#include "absl/status/statusor.h"
#include "data/batching/batch.h"
#include "data/sampling/epoch_order.h"
#include "graphcache/shape_plan.h"

namespace permafrost::train {

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  data::BatchingOptions batching;
  // Of a training schedule with more batches, or more graphs in all epochs together, only the beginning is walked, and
  // its ceiling is the proven bound. The time goes with the graphs (32 million of small sets take about 0.4 seconds; of
  // balanced and budget batches only an eighth of them are walked), the memory with the batches.
  int64_t max_batches = 2'000'000, max_graphs = int64_t{1} << 25;
};

// How much of a schedule is walked.
struct WalkLimits {
  int64_t batches = ScheduleOptions().max_batches, graphs = ScheduleOptions().max_graphs;
};
// The same time's worth of it where batches are composed.
WalkLimits LimitsOf(data::BatchingKind kind, WalkLimits limits = {});

// The batches that a job with these options trains on.
data::EpochOrder TrainingOrder(const data::Batcher& batcher, const data::EpochOrderOptions& options);

// Training over all epochs; evaluation of the validation split after each, and of the test split twice at the end.
// Errors: Cancelled soon after a stop is requested.
absl::StatusOr<graphcache::ShapePlan> PlanShapes(const data::Batcher& batcher, const ScheduleOptions& options,
                                                 const std::stop_token& stop);

}  // namespace permafrost::train
