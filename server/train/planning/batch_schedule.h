// Computes, before a job on small graphs begins, the shapes of all its batches. They are known ahead because sampling
// is seeded.
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

// Limits of the part of a schedule that is walked. The number of graphs determines the time (about 0.4 seconds for 32
// million graphs of small sets), and the number of batches the memory.
struct WalkLimits {
  int64_t batches = 2'000'000, graphs = int64_t{1} << 25;
};
// Limits that let the whole schedule be walked.
inline constexpr WalkLimits kWholeWalk{.batches = std::numeric_limits<int64_t>::max(),
                                       .graphs = std::numeric_limits<int64_t>::max()};
// Returns the limits for a kind of batching. If batches are composed rather than only shuffled, the limit of graphs
// is an eighth, since composing takes about eight times as long.
WalkLimits LimitsOf(spec::BatchingKind kind, WalkLimits limits = {});

// Returns the batches that a job with these options trains on.
data::EpochOrder TrainingOrder(const data::GraphExtents& graphs, const data::EpochOrderOptions& options);
// Returns the batches that a job evaluates `split` with, in the split's order. Each batch has the next batch_size
// graphs, or as many of the next graphs as a budget holds.
data::EpochOrder EvaluationOrder(const data::GraphExtents& graphs, data::Split split, int64_t batch_size,
                                 const spec::BatchingOptions& batching);

// Returns a flag for each Mode: true if only the last batch of an epoch has fewer graphs than the others.
std::array<bool, 2> HavePartialBatches(const spec::TrainOptions& options);
graphcache::GraphSizes SizesOf(const data::GraphSetSummary& summary);
// Returns how many graphs, or seeds, a full training batch has. On a set with a budget, this is the number of graphs
// of mean size that the budget holds; otherwise it is batch_size.
int64_t GraphsPerBatch(const spec::TrainOptions& options, const graphcache::GraphSizes& train);

// Walks the batches of `epochs` epochs within the limits, and counts them by shape. If the limits leave out any
// batch, the result's `cut` is true. The caller fills in the result's name, its ceiling and its fields about
// evaluation.
// Errors: Cancelled if `keep_going`, called now and then, returns false.
absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::GraphExtents& graphs, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going);

struct ScheduleOptions {
  int64_t epochs = 0, batch_size = 0;
  uint64_t seed = 0;
  spec::BatchingOptions batching;
  // The rank whose shares of the training batches are planned, and the number of ranks.
  int64_t rank = 0, world_size = 1;
  // If a training schedule exceeds the limits, only its beginning is walked, and its ceiling is the proven bound.
  WalkLimits limits;
};

// Returns the shapes of all batches that a job plans to run. The job trains over all epochs, evaluates the validation
// split after each epoch, and evaluates the test split at the end, at most twice. Errors: Cancelled soon after a stop
// is requested.
absl::StatusOr<graphcache::ShapeSchedule> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                     const std::stop_token& stop);

}  // namespace permafrost::train
