#include "train/planning/batch_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "data/sampling/epoch_order.h"
#include "graphcache/executable.h"
#include "graphcache/shape_plan.h"

namespace permafrost::train {
namespace {

// The number of graphs that are walked between two checks for a stop.
constexpr int64_t kGraphsPerCheck = int64_t{1} << 16;
// The factor by which dealing a graph to a composed batch takes longer than shuffling it.
constexpr int64_t kDealCost = 8;

data::EpochOrder OrderOf(const data::GraphExtents& graphs, data::Split of, const data::EpochOrderOptions& options) {
  const auto split = graphs.split(of);
  std::vector<data::GraphSize> sizes;
  if (options.batching.kind != spec::BatchingKind::kRandom) {
    sizes.reserve(split.size());
    for (size_t i = 0; i < split.size(); ++i) {
      const BatchShape shape = graphs.ShapeOf(split.subspan(i, 1));
      sizes.push_back({shape.nodes, shape.edges});
    }
  }
  return {split, options, std::move(sizes)};
}

class BatchWalker {
 public:
  // Calls `check` now and then; its error ends the walk. Borrows the graphs.
  BatchWalker(const data::GraphExtents& graphs, WalkLimits limits, std::function<absl::Status()> check)
      : graphs_(graphs), left_(limits), check_(std::move(check)) {}

  // Calls `visit` with the shape of each batch of an epoch, without padding. Returns false if the limits ended the
  // walk.
  absl::StatusOr<bool> Epoch(const data::EpochOrder& order, int64_t epoch,
                             absl::FunctionRef<void(const BatchShape& real)> visit) {
    PF_RETURN_IF_ERROR(check_());
    const data::EpochBatches batches = order.Of(epoch);
    for (int64_t b = 0; b < order.batches_per_epoch(); ++b) {
      const auto batch = order.Batch(batches, b);
      if (left_.batches < 1 || left_.graphs < std::ssize(batch)) return false;
      --left_.batches;
      left_.graphs -= std::ssize(batch);
      unchecked_ += std::ssize(batch);
      if (unchecked_ >= kGraphsPerCheck) {
        PF_RETURN_IF_ERROR(check_());
        unchecked_ = 0;
      }
      visit(graphs_.ShapeOf(batch));
    }
    return true;
  }

 private:
  const data::GraphExtents& graphs_;
  WalkLimits left_;
  const std::function<absl::Status()> check_;
  int64_t unchecked_ = 0;  // graphs since the last check
};

}  // namespace

WalkLimits LimitsOf(spec::BatchingKind kind, WalkLimits limits) {
  if (kind != spec::BatchingKind::kRandom) limits.graphs /= kDealCost;
  return limits;
}

data::EpochOrder TrainingOrder(const data::GraphExtents& graphs, const data::EpochOrderOptions& options) {
  return OrderOf(graphs, data::Split::kTrain, options);
}

data::EpochOrder EvaluationOrder(const data::GraphExtents& graphs, data::Split split, int64_t batch_size,
                                 const spec::BatchingOptions& batching) {
  return OrderOf(graphs, split, {.batch_size = batch_size, .shuffle = false, .batching = batching});
}

std::array<bool, 2> HavePartialBatches(const spec::TrainOptions& options) {
  const spec::BatchingKind kind = options.batching.kind;
  // The budget of a sampled block does not limit its number of seeds.
  if (options.model.level == spec::ModelLevel::kNode) return {true, true};
  return {kind == spec::BatchingKind::kRandom, kind != spec::BatchingKind::kBudget};
}

graphcache::GraphSizes SizesOf(const data::GraphSetSummary& summary) {
  const data::SizeStatistics& train = summary.splits[static_cast<size_t>(data::Split::kTrain)];
  return {.graphs = train.graphs,
          .std_nodes = train.std_nodes,
          .std_edges = train.std_edges,
          .mean_nodes = train.mean_nodes,
          .mean_edges = train.mean_edges};
}

int64_t GraphsPerBatch(const spec::TrainOptions& options, const graphcache::GraphSizes& train) {
  const bool is_budget = options.batching.kind == spec::BatchingKind::kBudget;
  if (!is_budget || options.model.level == spec::ModelLevel::kNode) return options.batch_size;
  const auto at_most = [](int64_t bound, double mean) {
    return bound > 0 && mean > 0 ? static_cast<double>(bound) / mean : std::numeric_limits<double>::infinity();
  };
  const double graphs = std::min({static_cast<double>(options.batch_size), static_cast<double>(train.graphs),
                                  at_most(options.batching.max_nodes, train.mean_nodes),
                                  at_most(options.batching.max_edges, train.mean_edges)});
  return std::max<int64_t>(static_cast<int64_t>(graphs), 1);
}

absl::StatusOr<graphcache::PlannedSchedule> WalkBatches(const data::GraphExtents& graphs, const data::EpochOrder& order,
                                                        int64_t epochs, const WalkLimits& limits,
                                                        const std::function<bool()>& keep_going) {
  graphcache::PlannedSchedule schedule{.epochs = epochs};
  std::map<BatchShape, size_t> known;
  const auto count = [&](const BatchShape& real) {
    const BatchShape least = data::Batcher::LeastPadded(real);
    const auto [it, is_new] = known.try_emplace(least, schedule.train.size());
    if (is_new) schedule.train.push_back({.shape = least});
    graphcache::PlannedShape& shape = schedule.train[it->second];
    ++shape.batches;
    shape.real_rows += graphcache::Rows(real);
    shape.dynamic_rows += graphcache::Rows(graphcache::AtLeastDynamic(least));
  };
  BatchWalker walker(graphs, limits, [&keep_going] {
    return keep_going() ? absl::OkStatus() : absl::CancelledError("stopped while batches were planned");
  });
  for (int64_t epoch = 0; epoch < epochs && !schedule.cut; ++epoch) {
    PF_ASSIGN_OR_RETURN(const bool whole, walker.Epoch(order, epoch, count));
    schedule.cut = !whole;
    if (epoch == 0) schedule.first_epoch_shapes = std::ssize(schedule.train);
  }
  return schedule;
}

namespace {

// The sum of the `count` largest values that were added.
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

// Returns a shape that no batch of `batch_size` graphs of the split can exceed.
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

// Returns the most graphs of one batch that a rank takes.
int64_t LargestShare(const ScheduleOptions& options) {
  return (options.batch_size + options.world_size - 1) / options.world_size;
}

absl::Status PlanTraining(const data::GraphExtents& graphs, const ScheduleOptions& options, const std::stop_token& stop,
                          graphcache::ShapeSchedule& plan) {
  const auto split = graphs.split(data::Split::kTrain);
  const data::EpochOrder epochs = TrainingOrder(graphs, {.batch_size = options.batch_size,
                                                         .seed = options.seed,
                                                         .rank = options.rank,
                                                         .world_size = options.world_size,
                                                         .batching = options.batching});
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
    PF_ASSIGN_OR_RETURN(plan.train_ceiling, ProvenBound(graphs, split, LargestShare(options), stop));
    counter.Add(plan.train_ceiling, 0);
  }
  plan.train_schedule = graphcache::MergeNeighbours(counter.Counts());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<graphcache::ShapeSchedule> PlanShapes(const data::GraphExtents& graphs, const ScheduleOptions& options,
                                                     const std::stop_token& stop) {
  graphcache::ShapeSchedule plan;
  PF_RETURN_IF_ERROR(PlanTraining(graphs, options, stop, plan));
  // Every evaluation has the same batches, so one pass over the splits sees all of them.
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
