// Tests sampled batches that are prepared ahead, across the ends of epochs and evaluations.
#include "train/tasks/sampled_passes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "node_cases.h"
#include "temp_dir.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

// With `keeps`, there is memory to prepare batches of both modes at once, ahead of their pass.
std::unique_ptr<Task> Make(const spec::TrainOptions& options, const std::shared_ptr<const data::Graph>& graph,
                           bool keeps) {
  const MemoryLimits limits{.process = keeps ? std::numeric_limits<uint64_t>::max() : 1};
  auto task = Task::Create(options, graph, at::kCPU, keeps ? 2 : 1, [] { return true; }, {.limits = limits});
  EXPECT_TRUE(task.ok()) << task.status();
  return *std::move(task);
}

// Takes up to `count` batches of both streams and compares them. Returns the number of batches.
int64_t Compare(BatchStream& one, BatchStream& other, int64_t count = std::numeric_limits<int64_t>::max()) {
  for (int64_t taken = 0; taken < count; ++taken) {
    const auto a = one.Next(), b = other.Next();
    EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    EXPECT_EQ(*a == nullptr, *b == nullptr) << "batch " << taken;
    if (*a == nullptr || *b == nullptr) return taken;
    EXPECT_TRUE(std::ranges::equal((*a)->ids(), (*b)->ids())) << "batch " << taken;
    const auto left = (*a)->PadTo((*a)->least_padded(), 0), right = (*b)->PadTo((*b)->least_padded(), 0);
    EXPECT_TRUE(left.ok() && right.ok());
    for (size_t i = 0; i < (*left)->tensors.size(); ++i) {
      const at::Tensor &x = (*left)->tensors[i], &y = (*right)->tensors[i];
      EXPECT_TRUE(x.defined() == y.defined() && (!x.defined() || at::allclose(x, y, 0, 0, /*equal_nan=*/true)))
          << "batch " << taken << ", input " << i;
    }
  }
  return count;
}

class SampledPassesTest : public testing::Test {
 protected:
  std::shared_ptr<const data::Graph> Graph(const TinyGraphOptions& options) {
    return WriteTinyGraph(dir_.path() / std::to_string(++graphs_), options);
  }

  const TempDir dir_;
  int graphs_ = 0;
};

TEST_F(SampledPassesTest, BatchesAreThoseOfPassesThatAreMadeApart) {
  int tried = 0;
  for (const NodeCase& c : NodeCases()) {
    if (c.options.nodes.fan_outs.empty()) continue;
    SCOPED_TRACE(c.why);
    const auto graph = Graph(c.graph);
    const auto kept = Make(c.options, graph, true), apart = Make(c.options, graph, false);
    const auto train = [&](int64_t epoch, int64_t first, int64_t count) {
      return Compare(*kept->TrainBatches(epoch, first), *apart->TrainBatches(epoch, first), count);
    };
    const auto evaluate = [&](data::Split split, int64_t count) {
      return Compare(*kept->EvalBatches(split), *apart->EvalBatches(split), count);
    };
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    const int64_t batches = kept->batches_per_epoch();
    ASSERT_GT(batches, 2);
    EXPECT_EQ(train(0, 0, kAll), batches);
    const int64_t valid = evaluate(data::Split::kValid, kAll);
    EXPECT_GT(valid, 0);
    EXPECT_EQ(train(1, 0, 2), 2) << "an epoch that is left";
    EXPECT_EQ(train(1, 2, kAll), batches - 2) << "is gone on with";
    EXPECT_EQ(evaluate(data::Split::kValid, 1), 1) << "an evaluation that is left";
    EXPECT_EQ(evaluate(data::Split::kValid, kAll), valid) << "begins anew";
    EXPECT_EQ(train(1, 0, 1), 1) << "back to where a checkpoint was";
    EXPECT_EQ(train(1, batches, kAll), 0) << "nothing is left of an epoch before its evaluation";
    EXPECT_EQ(evaluate(data::Split::kTest, kAll), evaluate(data::Split::kTest, kAll));
    EXPECT_EQ(evaluate(data::Split::kValid, kAll), valid);
    EXPECT_EQ(train(2, 0, kAll), batches);
    EXPECT_EQ(train(3, 0, kAll), batches) << "the last one";
    EXPECT_EQ(train(3, 0, kAll), batches) << "once more";
    ++tried;
  }
  EXPECT_GT(tried, 5);
}

// Each batch is reported exactly once, whichever pass prepared it.
TEST_F(SampledPassesTest, EachPassTellsOfItsOwnLookAhead) {
  const spec::TrainOptions options = SampledJob(spec::Architecture::kGcn);
  const auto graph = Graph({});
  int64_t edges[2] = {}, told[2] = {};
  for (const bool keeps : {false, true}) {
    const auto task = Make(options, graph, keeps);
    for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
      const auto batches = task->TrainBatches(epoch, 0);
      while (const auto batch = *batches->Next()) edges[keeps] += batch->real().edges;
      told[keeps] += batches->look_ahead()->sampled_edges;
    }
  }
  EXPECT_GT(edges[0], 0);
  EXPECT_EQ(edges[0], edges[1]);
  EXPECT_EQ(told[0], edges[0]);
  EXPECT_EQ(told[1], edges[1]);
}

TEST_F(SampledPassesTest, BothModesNeedRoom) {
  const spec::TrainOptions options = SampledJob(spec::Architecture::kGcn);
  const data::GraphSummary summary = Graph({})->summary();
  const auto model = NodeModelFor(options, summary, kNoLimits, "spec.");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto has_room = [&](uint64_t process) {
    const MemoryLimits limits{.process = process};
    return HasRoomForBothModes(options, *model, summary, limits);
  };
  EXPECT_TRUE(has_room(kNoLimits.process));
  // Finds the least memory that the job itself accepts.
  uint64_t below = 0, least = uint64_t{1} << 40;
  while (least - below > 1) {
    const uint64_t process = below + (least - below) / 2;
    (NodeJobBytes(options, *model, summary, {.process = process}) <= process ? least : below) = process;
  }
  EXPECT_FALSE(has_room(least));
  EXPECT_TRUE(has_room(2 * least));
}

}  // namespace
}  // namespace permafrost::train
