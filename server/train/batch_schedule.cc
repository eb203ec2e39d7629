#include "train/batch_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graphcache/executable.h"
#include "graphcache/shape_plan.h"

namespace permafrost::train {
namespace {

constexpr int64_t kGraphsPerLook = int64_t{1} << 16;
// Dealing a graph takes so many times as long as shuffling it.
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
  // The budget of a sampled block takes none of its seeds.
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

absl::StatusOr<bool> BatchWalker::Epoch(const data::EpochOrder& order, int64_t epoch,
                                        absl::FunctionRef<void(const BatchShape& real)> visit) {
  PF_RETURN_IF_ERROR(check_());
  const data::EpochBatches batches = order.Of(epoch);
  for (int64_t b = 0; b < order.batches_per_epoch(); ++b) {
    const auto batch = order.Batch(batches, b);
    if (left_.batches < 1 || left_.graphs < std::ssize(batch)) return false;
    --left_.batches;
    left_.graphs -= std::ssize(batch);
    if ((unchecked_ += std::ssize(batch)) >= kGraphsPerLook) {
      PF_RETURN_IF_ERROR(check_());
      unchecked_ = 0;
    }
    visit(graphs_.ShapeOf(batch));
  }
  return true;
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

}  // namespace permafrost::train
