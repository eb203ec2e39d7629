// All training batches of a job on a set of small graphs, by shape, for a plan.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "data/batching/batch.h"
#include "data/sampling/epoch_order.h"
#include "graphcache/cache_plan.h"
#include "train/shape_schedule.h"

namespace permafrost::train {

// Walks the batches of `epochs` epochs within the limits; `cut` says that there were more. Leaves the
// names, the ceiling and all of evaluation to the caller. Errors: Cancelled where `keep_going`, asked once an epoch,
// says so.
absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::Batcher& batcher, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going);

}  // namespace permafrost::train
