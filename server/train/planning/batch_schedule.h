// Walks through the batches of a job on a set of small graphs ahead of its first step, and tells their shapes. They
// are known ahead since sampling is seeded.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <stop_token>

#include "absl/status/statusor.h"
#include "data/batching/batch.h"
#include "data/sampling/epoch_order.h"
#include "graphcache/cache_plan.h"
#include "graphcache/shape_plan.h"
#include "spec/train_options.h"

namespace permafrost::train {

// The part of a schedule that is walked. The time grows with the graphs (32 million graphs of small sets take about
// 0.4 seconds), the memory with the batches.
struct WalkLimits {
  int64_t batches = 2'000'000, graphs = int64_t{1} << 25;
};
// Limits that let the whole schedule be walked.
inline constexpr WalkLimits kWholeWalk{.batches = std::numeric_limits<int64_t>::max(),
                                       .graphs = std::numeric_limits<int64_t>::max()};
// Returns limits that take about as long if batches are composed: an eighth of the graphs.
WalkLimits LimitsOf(spec::BatchingKind kind, WalkLimits limits = {});

// Returns the batches that a job with these options trains on.
data::EpochOrder TrainingOrder(const data::GraphExtents& graphs, const data::EpochOrderOptions& options);
// Returns the batches that a job evaluates `split` with, in the split's order. Each has the next batch_size graphs, or
// as many as a budget holds.
data::EpochOrder EvaluationOrder(const data::GraphExtents& graphs, data::Split split, int64_t batch_size,
                                 const spec::BatchingOptions& batching);

// Returns by Mode whether only the last batch of an epoch has fewer graphs than the others.
std::array<bool, 2> HavePartialBatches(const spec::TrainOptions& options);
graphcache::GraphSizes SizesOf(const data::GraphSetSummary& summary);
// Returns how many graphs, or seeds, a full training batch has. That is batch_size, or on a set with a budget as many
// graphs of mean size as the budget holds.
int64_t GraphsPerBatch(const spec::TrainOptions& options, const graphcache::GraphSizes& train);

// Walks all batches of `epochs` epochs and counts them by shape, within the limits. `cut` of the result says whether
// there were more. The caller fills in the name, the ceiling and all of evaluation. Errors: Cancelled if `keep_going`,
// called now and then, returns false.
absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::GraphExtents& graphs, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going);

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  spec::BatchingOptions batching;
  // Shapes are those of this rank's share of each training batch.
  int64_t rank = 0, world_size = 1;
  // If a training schedule exceeds the limits, only its beginning is walked, and its ceiling is the proven bound.
  WalkLimits limits;
};

// Returns the shapes of every batch that a job plans to run. It trains over all epochs, evaluates the validation split
// after each epoch, and evaluates the test split at the end, at most twice. Errors: Cancelled soon after a stop is
// requested.
absl::StatusOr<graphcache::ShapeSchedule> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                     const std::stop_token& stop);

}  // namespace permafrost::train
