// Tests the batches with which a job on small graphs is captured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "graphcache/shape_plan.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr int kTargets = 3;

// Returns paths of 2 to 11 nodes with three targets. One in `labelled` graphs has a label, for one of the targets. If
// `labelled` is 0, no graph has one.
std::vector<TinyGraph> MostlyMissing(int graphs, int labelled) {
  std::vector<TinyGraph> set;
  for (int g = 0; g < graphs; ++g) {
    TinyGraph graph{.further = std::vector(kTargets - 1, kMissing)};
    graph.categories.resize(static_cast<size_t>(2 + g * 7 % 10), 1);
    for (unsigned v = 1; v < graph.categories.size(); ++v) graph.edges.emplace_back(v, v - 1);
    if (labelled > 0 && g % labelled == labelled - 1) {
      const int target = g / labelled % kTargets;
      (target == 0 ? graph.label : graph.further[static_cast<size_t>(target - 1)]) = g % 2;
    }
    set.push_back(std::move(graph));
  }
  return set;
}

class GraphSetProbesTest : public testing::Test {
 protected:
  std::unique_ptr<Task> MakeTask(const std::vector<TinyGraph>& graphs) {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2};
    options.loss = spec::Loss::kBce;
    options.batch_size = 24;
    options.epochs = 2;
    options.seed = 3;
    set_ = ImportGraphs(dir_.path() / "set", graphs);
    auto task = Task::Create(options, set_, c10::Device(c10::kCPU), 1, [] { return true; });
    EXPECT_TRUE(task.ok()) << task.status();
    return task.ok() ? *std::move(task) : nullptr;
  }
  // Returns the shapes at which a ladder of 8 rungs is captured.
  static std::vector<BatchShape> Rungs(const Task& task, Mode mode) {
    return graphcache::LadderOf(task.plan(), mode, 8);
  }
  static int64_t Labels(const absl::StatusOr<HostBatch*>& batch) {
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch.ok() ? std::ranges::count_if((*batch)->labels(), [](float l) { return !std::isnan(l); }) : 0;
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
};

TEST_F(GraphSetProbesTest, EachHasALabelWhereTheSplitHasAny) {
  const auto task = MakeTask(MostlyMissing(600, 40));
  ASSERT_NE(task, nullptr);
  ASSERT_EQ(set_->summary().num_targets, kTargets);
  ASSERT_EQ(set_->summary().num_missing_labels, 3 * 600 - 15);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const std::vector<BatchShape> rungs = Rungs(*task, mode);
    ASSERT_FALSE(rungs.empty());
    for (const BatchShape& rung : rungs) {
      SCOPED_TRACE(ToString(rung));
      EXPECT_GT(Labels(task->RungProbe(mode, rung)), 0);
      const auto probes = task->Probes(mode, rung);
      ASSERT_TRUE(probes.ok()) << probes.status();
      for (HostBatch* probe : *probes) EXPECT_GT(Labels(probe), 0);
    }
    for (size_t probe = 0; probe < device::kDynamicProbes; ++probe) {
      EXPECT_GT(Labels(task->DynamicProbe(mode, probe)), 0) << probe;
      EXPECT_GT(Labels(task->SmallProbe(mode, probe)), 0) << probe;
    }
  }
}

// An eighth of a rung's graphs is enough to prove the rung, apart from the graphs that every probe needs.
TEST_F(GraphSetProbesTest, ARungIsProvenOnFewGraphsOfWhichNoneComesTwice) {
  const auto task = MakeTask(MostlyMissing(600, 40));
  ASSERT_NE(task, nullptr);
  const std::vector<BatchShape> rungs = Rungs(*task, Mode::kTrain);
  ASSERT_GT(rungs.size(), 1U);
  for (const BatchShape& rung : rungs) {
    const auto batch = task->RungProbe(Mode::kTrain, rung);
    ASSERT_TRUE(batch.ok()) << batch.status();
    const auto ids = (*batch)->ids();
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), ids.size());
    EXPECT_TRUE(rung.Holds((*batch)->least_padded()));
    EXPECT_EQ((*batch)->padded(), rung);
    if (rung != rungs.back()) {
      EXPECT_LE(ids.size(), static_cast<size_t>(rung.graphs / 8 + 2));
    }
  }
}

TEST_F(GraphSetProbesTest, ASetWithoutLabelsHasProbesAsEver) {
  const auto task = MakeTask(MostlyMissing(200, 0));
  ASSERT_NE(task, nullptr);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    for (const BatchShape& rung : Rungs(*task, mode)) {
      const auto batch = task->RungProbe(mode, rung);
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_GT((*batch)->real().edges, 0);
    }
  }
}

}  // namespace
}  // namespace permafrost::train
