
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/sampling/epoch_order.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/planning/batch_schedule.h"

namespace permafrost::train {
namespace {

class ShapeScheduleTest : public testing::Test {
 protected:
  void SetUp() override { batcher_ = *data::Batcher::Create(ImportTinyGraphs(dir_.path(), 100)); }
  TempDir dir_;
  std::unique_ptr<data::Batcher> batcher_;
};

TEST_F(ShapeScheduleTest, IsWhatTheRunWillSee) {
  const graphcache::ShapeSchedule plan =
      *PlanShapes(batcher_->extents(), {.epochs = 5, .batch_size = 9, .seed = 3}, {});
  const data::EpochOrder epochs(batcher_->split(data::Split::kTrain), {.batch_size = 9, .seed = 3});
  std::set<BatchShape> shapes;
  BatchShape ceiling;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto order = epochs.Of(epoch);
    for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
      data::PaddedBatch batch;
      const auto graphs = epochs.Batch(order, b);
      ASSERT_TRUE(batcher_->Assemble(graphs, data::Batcher::LeastPadded(batcher_->ShapeOf(graphs)), batch).ok());
      shapes.insert(batch.padded);
      ceiling = {std::max(ceiling.nodes, batch.padded.nodes), std::max(ceiling.edges, batch.padded.edges),
                 std::max(ceiling.graphs, batch.padded.graphs)};
    }
  }
  EXPECT_EQ(plan.train_shapes, static_cast<int64_t>(shapes.size()));
  EXPECT_EQ(plan.known_train_shapes, plan.train_shapes);
  EXPECT_EQ(plan.train_ceiling, ceiling);
  EXPECT_EQ(plan.train_schedule.size(), shapes.size());
  for (const graphcache::ShapeCount& s : plan.train_schedule) EXPECT_TRUE(shapes.contains(s.shape));
  // Each evaluation split has 10 graphs in batches of 9. That makes four batches of at most four shapes, each with
  // its own rung.
  EXPECT_LE(plan.eval_rungs.size(), 4U);
  for (const data::Split split : {data::Split::kValid, data::Split::kTest}) {
    const auto graphs = batcher_->split(split);
    for (const auto& batch : {graphs.subspan(0, 9), graphs.subspan(9)}) {
      const BatchShape shape = data::Batcher::LeastPadded(batcher_->ShapeOf(batch));
      EXPECT_NE(std::ranges::find(plan.eval_rungs, shape), plan.eval_rungs.end()) << ToString(shape);
    }
  }
}

TEST_F(ShapeScheduleTest, AScheduleTooLongToWalkGetsTheProvenBound) {
  // 80 graphs make nine batches per epoch, for 200 epochs.
  const ScheduleOptions walked{.epochs = 200, .batch_size = 9, .seed = 3};
  ScheduleOptions few_batches = walked, few_graphs = walked;
  few_batches.limits.batches = 200 * 9 - 1;
  few_graphs.limits.graphs = 200 * 80 - 1;
  const graphcache::ShapeSchedule exact = *PlanShapes(batcher_->extents(), walked, {});
  EXPECT_GT(exact.train_shapes, 0);
  for (const ScheduleOptions& options : {few_batches, few_graphs}) {
    const graphcache::ShapeSchedule proven = *PlanShapes(batcher_->extents(), options, {});
    EXPECT_EQ(proven.train_shapes, 0);
    EXPECT_TRUE(proven.train_ceiling.Holds(exact.train_ceiling));
    EXPECT_GT(proven.train_ceiling.nodes, exact.train_ceiling.nodes);
    // A batch has at most nine graphs of at most 12 nodes.
    EXPECT_LE(proven.train_ceiling.nodes, 9 * 12 + 1);
    EXPECT_EQ(proven.train_ceiling.graphs, 10);
    EXPECT_EQ(proven.eval_rungs, exact.eval_rungs);
    // The top rung of a ladder is the bound, at which no batch was seen.
    EXPECT_EQ(proven.train_schedule.back(), (graphcache::ShapeCount{proven.train_ceiling, 0}));
    EXPECT_EQ(LadderOf(proven, Mode::kTrain, 4).back(), proven.train_ceiling);
    // The walk saw all batches but the last.
    EXPECT_LE(proven.known_train_shapes, exact.train_shapes);
    EXPECT_GE(proven.known_train_shapes, exact.train_shapes - 1);
  }
}

// The cost of the walk depends on graphs: few batches of very many graphs cost as much as many batches of few.
TEST_F(ShapeScheduleTest, TheWalkIsBoundedByGraphsWhateverTheBatchSize) {
  const ScheduleOptions options{.epochs = 1'000'000, .batch_size = 65'536, .seed = 3, .limits = {.graphs = 80 * 7}};
  const graphcache::ShapeSchedule plan = *PlanShapes(batcher_->extents(), options, {});
  EXPECT_EQ(plan.train_shapes, 0);
  EXPECT_EQ(plan.known_train_shapes, 1) << "the whole split in each batch";
  EXPECT_EQ(plan.train_ceiling.graphs, 80 + 1);
}

TEST_F(ShapeScheduleTest, ABudgetBoundsEvaluationToo) {
  const spec::BatchingOptions budget{.kind = spec::BatchingKind::kBudget, .max_nodes = 30, .max_edges = 60};
  const graphcache::ShapeSchedule plan = *PlanShapes(
      batcher_->extents(), {.epochs = 2, .batch_size = spec::kMaxBatchSize, .seed = 3, .batching = budget}, {});
  // A shape has one row more than its batch.
  for (const graphcache::ShapeCount& s : plan.eval_schedule) {
    EXPECT_LE(s.shape.nodes, 30 + 1);
    EXPECT_LE(s.shape.edges, 60);
  }
  EXPECT_LE(plan.train_ceiling.nodes, 30 + 1);
  EXPECT_LE(plan.train_ceiling.edges, 60);
}

TEST(GraphsPerBatch, OfABudgetAreAsManyOfMeanSizeAsItHolds) {
  spec::TrainOptions options;
  options.batch_size = 32;
  graphcache::GraphSizes sizes{.graphs = 1000, .mean_nodes = 10, .mean_edges = 25};
  EXPECT_EQ(GraphsPerBatch(options, sizes), 32);
  options.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 200, .max_edges = 400};
  EXPECT_EQ(GraphsPerBatch(options, sizes), 16) << "the edges fill first";
  options.batching.max_edges = 0;
  EXPECT_EQ(GraphsPerBatch(options, sizes), 20);
  options.batch_size = 8;
  EXPECT_EQ(GraphsPerBatch(options, sizes), 8);
  sizes.mean_nodes = 5000;
  EXPECT_EQ(GraphsPerBatch(options, sizes), 1);
}

TEST_F(ShapeScheduleTest, AStopEndsTheWalk) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(
      PlanShapes(batcher_->extents(), {.epochs = 5, .batch_size = 9, .seed = 3}, stop.get_token()).status()));
}

}  // namespace
}  // namespace permafrost::train
