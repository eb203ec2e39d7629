// The batches of a job on a set of small graphs and their shapes, walked ahead: they are known before its first step,
// since sampling is seeded.
// Threads: pure functions; a walker from one thread.
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

// The part of a schedule that is walked. The time goes with the graphs (32 million of small sets take about 0.4
// seconds), the memory with the batches.
struct WalkLimits {
  int64_t batches = 2'000'000, graphs = int64_t{1} << 25;
};
// Walks the whole schedule.
inline constexpr WalkLimits kWholeWalk{.batches = std::numeric_limits<int64_t>::max(),
                                       .graphs = std::numeric_limits<int64_t>::max()};
// The same time's worth where batches are composed: an eighth of the graphs.
WalkLimits LimitsOf(spec::BatchingKind kind, WalkLimits limits = {});

// The batches that a job with these options trains on.
data::EpochOrder TrainingOrder(const data::GraphExtents& graphs, const data::EpochOrderOptions& options);
// Returns the batches that it evaluates `split` with: in the split's order, batch_size after batch_size of its graphs,
// or as many as a budget holds.
data::EpochOrder EvaluationOrder(const data::GraphExtents& graphs, data::Split split, int64_t batch_size,
                                 const spec::BatchingOptions& batching);

// For each mode true if only the last batch of an epoch has fewer graphs than the others.
std::array<bool, 2> HavePartialBatches(const spec::TrainOptions& options);
graphcache::GraphSizes SizesOf(const data::GraphSetSummary& summary);
// Graphs, or seeds, of a full training batch: batch_size, or of a set as many graphs of mean size as a budget holds.
int64_t GraphsPerBatch(const spec::TrainOptions& options, const graphcache::GraphSizes& train);

// All batches of `epochs` epochs by shape, within the limits; `cut` says that there were more. Leaves the name, the
// ceiling and all of evaluation to the caller. Errors: Cancelled where `keep_going`, asked now and then, says so.
absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::GraphExtents& graphs, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going);

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  spec::BatchingOptions batching;
  // The shapes are those of this rank's share of each training batch.
  int64_t rank = 0, world_size = 1;
  // If a training schedule is beyond them, only its beginning is walked, and its ceiling is the proven bound.
  WalkLimits limits;
};

// Returns the shapes of every batch that a job plans to run: training over all epochs; evaluation of the validation
// split after each, and of the test split at the end, twice at most. Errors: Cancelled soon after a stop is requested.
absl::StatusOr<graphcache::ShapeSchedule> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                     const std::stop_token& stop);

}  // namespace permafrost::train
