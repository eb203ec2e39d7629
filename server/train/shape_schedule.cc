#include "train/shape_schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "data/sampling/epoch_order.h"

namespace permafrost::train {
namespace {

void CountEpoch(const data::Batcher& batcher, const data::ShapeSampler& sampler, int64_t epoch, int64_t times,
                graphcache::ShapeCounter& counter) {
  const std::vector<uint32_t> order = sampler.EpochOrder(epoch);
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
    counter.Add(data::Batcher::LeastPadded(batcher.ShapeOf(sampler.Batch(order, b))), times);
  }
}

// The `count` largest sizes together.
int64_t SumOfLargest(std::vector<int64_t>& sizes, int64_t count) {
  const auto end = sizes.begin() + std::min<std::ptrdiff_t>(count, std::ssize(sizes));
  std::ranges::partial_sort(sizes, end, std::greater());
  return std::accumulate(sizes.begin(), end, int64_t{0});
}

// No batch of `batch_size` graphs of the split can be larger.
BatchShape ProvenBound(const data::Batcher& batcher, std::span<const uint32_t> split, int64_t batch_size) {
  std::vector<int64_t> nodes, edges;
  for (const uint32_t graph : split) {
    const BatchShape shape = batcher.ShapeOf({&graph, 1});
    nodes.push_back(shape.nodes);
    edges.push_back(shape.edges);
  }
  const int64_t graphs = std::min<int64_t>(batch_size, std::ssize(split));
  return data::Batcher::LeastPadded({SumOfLargest(nodes, graphs), SumOfLargest(edges, graphs), graphs});
}

}  // namespace

graphcache::ShapePlan PlanShapes(const data::Batcher& batcher, const ScheduleOptions& options) {
  graphcache::ShapePlan plan;
  const auto train = batcher.split(data::Split::kTrain);
  const data::ShapeSampler sampler(train, {.batch_size = options.batch_size, .seed = options.seed});
  if (sampler.batches_per_epoch() * options.epochs <= options.max_batches) {
    graphcache::ShapeCounter counter;
    for (int64_t epoch = 0; epoch < options.epochs; ++epoch) CountEpoch(batcher, sampler, epoch, 1, counter);
    plan.train_ceiling = graphcache::Ceiling(counter.Counts());
    plan.train_shapes = counter.distinct();
  } else {
    plan.train_ceiling = ProvenBound(batcher, train, options.batch_size);
  }
  graphcache::ShapeCounter evaluation;
  const auto add = [&](data::Split split, int64_t times) {
    CountEpoch(batcher, {batcher.split(split), {.batch_size = options.batch_size, .shuffle = false}}, 0, times,
               evaluation);
  };
  add(data::Split::kValid, options.epochs);
  add(data::Split::kTest, 2);
  plan.eval_rungs = graphcache::Ladder(evaluation.Counts(), graphcache::kMaxEvalRungs);
  return plan;
}

}  // namespace permafrost::train
