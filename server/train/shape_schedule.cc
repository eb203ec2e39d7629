#include "train/shape_schedule.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "base/patience.h"
#include "base/status.h"
#include "data/sampling/epoch_order.h"

namespace permafrost::train {
namespace {

// Graphs between two looks at the stop.
constexpr int64_t kGraphsPerCheck = int64_t{1} << 16;
// The sum of the `count` largest values added.
class LargestSum {
 public:
  explicit LargestSum(int64_t count) : count_(static_cast<size_t>(count)) {}
  void Add(int64_t value) {
    sum_ += value;
    kept_.push(value);
    if (kept_.size() <= count_) return;
    sum_ -= kept_.top();
    kept_.pop();
  }
  int64_t sum() const { return sum_; }

 private:
  size_t count_;
  int64_t sum_ = 0;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> kept_;
};

// No batch of `batch_size` graphs of the split can be larger.
absl::StatusOr<BatchShape> ProvenBound(const data::GraphExtents& graphs, std::span<const uint32_t> split,
                                       int64_t batch_size, const std::stop_token& stop) {
  const int64_t most = std::min<int64_t>(batch_size, std::ssize(split));
  LargestSum nodes(most), edges(most);
  for (size_t i = 0; i < split.size(); ++i) {
    if (i % kGraphsPerCheck == 0) PF_RETURN_IF_ERROR(CheckStop(stop));
    const BatchShape shape = graphs.ShapeOf(split.subspan(i, 1));
    nodes.Add(shape.nodes);
    edges.Add(shape.edges);
  }
  return data::Batcher::LeastPadded({nodes.sum(), edges.sum(), most});
}

absl::Status PlanTraining(const data::GraphExtents& graphs, const ScheduleOptions& options, const std::stop_token& stop,
                          graphcache::ShapePlan& plan) {
  const auto split = graphs.split(data::Split::kTrain);
  const data::EpochOrder epochs =
      TrainingOrder(graphs, {.batch_size = options.batch_size, .seed = options.seed, .batching = options.batching});
  const bool dealt = options.batching.kind != spec::BatchingKind::kRandom;
  BatchWalker walker(graphs, LimitsOf(options.batching.kind, options.limits), [&stop] { return CheckStop(stop); });
  graphcache::ShapeCounter counter;
  const auto count = [&counter](const BatchShape& real) { counter.Add(data::Batcher::LeastPadded(real)); };
  bool whole = true;
  for (int64_t epoch = 0; whole && epoch < options.epochs; ++epoch) {
    PF_ASSIGN_OR_RETURN(whole, walker.Epoch(epochs, epoch, count));
  }
  plan.known_train_shapes = counter.distinct();
  if (whole) {
    plan.train_shapes = counter.distinct();
    plan.train_ceiling = graphcache::Ceiling(counter.Counts());
  } else if (dealt) {
    const data::DealLimits& most = epochs.limits();
    plan.train_ceiling = data::Batcher::LeastPadded({most.nodes, most.edges, most.graphs});
    counter.Add(plan.train_ceiling, 0);
  } else {
    PF_ASSIGN_OR_RETURN(plan.train_ceiling, ProvenBound(graphs, split, options.batch_size, stop));
    counter.Add(plan.train_ceiling, 0);
  }
  plan.train_schedule = graphcache::MergeNeighbours(counter.Counts());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<graphcache::ShapePlan> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                 const std::stop_token& stop) {
  graphcache::ShapePlan plan;
  PF_RETURN_IF_ERROR(PlanTraining(graphs, options, stop, plan));
  // Each evaluation batch comes again and again: one pass over the splits sees them all.
  BatchWalker walker(graphs, kWholeWalk, [&stop] { return CheckStop(stop); });
  graphcache::ShapeCounter counter;
  const auto add = [&](data::Split split, int64_t times) {
    const data::EpochOrder epochs = EvaluationOrder(graphs, split, options.batch_size, options.batching);
    return walker
        .Epoch(epochs, 0, [&](const BatchShape& real) { counter.Add(data::Batcher::LeastPadded(real), times); })
        .status();
  };
  PF_RETURN_IF_ERROR(add(data::Split::kValid, options.epochs));
  PF_RETURN_IF_ERROR(add(data::Split::kTest, 2));
  plan.eval_schedule = graphcache::MergeNeighbours(counter.Counts());
  plan.eval_rungs = graphcache::Ladder(plan.eval_schedule, graphcache::kMaxEvalRungs);
  return plan;
}

}  // namespace permafrost::train
