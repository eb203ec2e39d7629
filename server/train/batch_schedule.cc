#include "train/batch_schedule.h"

#include <map>

#include "absl/status/status.h"
#include "graphcache/executable.h"
#include "graphcache/shape_plan.h"

namespace permafrost::train {

absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::Batcher& batcher, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going) {
  graphcache::PlannedSchedule schedule{.epochs = epochs};
  std::map<BatchShape, size_t> known;
  int64_t batches_left = limits.batches, graphs_left = limits.graphs;
  for (int64_t epoch = 0; epoch < epochs && !schedule.cut; ++epoch) {
    if (!keep_going()) return absl::CancelledError("stopped while batches were planned");
    const auto batches = order.Of(epoch);
    for (int64_t b = 0; b < order.batches_per_epoch(); ++b) {
      const auto graphs = order.Batch(batches, b);
      graphs_left -= std::ssize(graphs);
      if (--batches_left < 0 || graphs_left < 0) {
        schedule.cut = true;
        break;
      }
      const BatchShape real = batcher.ShapeOf(graphs);
      const BatchShape least = data::Batcher::LeastPadded(real);
      const auto [it, is_new] = known.try_emplace(least, schedule.train.size());
      if (is_new) schedule.train.push_back({.shape = least});
      graphcache::PlannedShape& shape = schedule.train[it->second];
      ++shape.batches;
      shape.real_rows += graphcache::Rows(real);
      shape.dynamic_rows += graphcache::Rows(graphcache::AtLeastDynamic(least));
    }
    if (epoch == 0) schedule.first_epoch_shapes = std::ssize(schedule.train);
  }
  return schedule;
}

}  // namespace permafrost::train
