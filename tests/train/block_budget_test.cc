// Tests jobs whose sampled blocks have a budget of nodes and edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "node_cases.h"
#include "recorder.h"
#include "train/loop/torch_runner.h"
#include "train/planning/block_rungs.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

constexpr int64_t kMostNodes = 120, kMostEdges = 150;

class BlockBudgetTest : public NodeTaskTest {
 protected:
  static spec::TrainOptions Job(spec::Architecture architecture, int64_t max_nodes = kMostNodes,
                                int64_t max_edges = kMostEdges) {
    spec::TrainOptions options = SampledJob(architecture);
    options.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = max_nodes, .max_edges = max_edges};
    options.checkpoint.every_seconds = 0;
    return options;
  }
  static std::vector<NodeCase> Cases() {
    using enum spec::Architecture;
    spec::TrainOptions disjoint = Job(kGcn), timed = Job(kSage), all = Job(kGcn), edges = Job(kSage, 0);
    disjoint.nodes.disjoint = true;
    timed.nodes.temporal = spec::TemporalSampling::kLast;
    all.nodes.fan_outs = {-1, -1};
    all.nodes.eval_fan_outs = {-1, 2};
    return {{"SAGE", {}, Job(kSage)},
            {"SAGE, edges alone", {}, edges},
            {"GCN, nodes alone, sparse features", {.sparse = true, .weighted = true}, Job(kGcn, kMostNodes, 0)},
            {"every neighbour", {}, all},
            {"each seed apart", {}, disjoint},
            {"the latest edges", {.timestamped = true}, timed}};
  }
  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::shared_ptr<const data::Graph>& graph,
                                 const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graph, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }
  // Checks that all batches are within the budget, and returns their number.
  static int64_t CheckBatches(BatchStream& batches, const spec::BatchingOptions& budget, const char* why) {
    int64_t count = 0;
    for (;; ++count) {
      const auto batch = batches.Next();
      EXPECT_TRUE(batch.ok()) << why << ": " << batch.status();
      if (!batch.ok() || *batch == nullptr) return count;
      const BatchShape real = (*batch)->real();
      if (budget.max_nodes > 0) {
        EXPECT_LE(real.nodes, budget.max_nodes) << why;
      }
      if (budget.max_edges > 0) {
        EXPECT_LE(real.edges, budget.max_edges) << why;
      }
    }
  }

  const std::unique_ptr<Runner> runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
};

TEST_F(BlockBudgetTest, NoBatchOfTrainingOrEvaluationIsBeyondIt) {
  for (const NodeCase& c : Cases()) {
    const auto graph = Graph(c.graph);
    const auto task = Task::Create(c.options, graph, at::kCPU, 2, [] { return true; });
    ASSERT_TRUE(task.ok()) << c.why << ": " << task.status();
    const auto training = (*task)->TrainBatches(0, 0);
    EXPECT_EQ(CheckBatches(*training, c.options.batching, c.why), 5) << c.why;
    EXPECT_GT(training->look_ahead()->cut_batches, 0) << c.why << ": the budget is met";
    for (const data::Split split : {data::Split::kValid, data::Split::kTest}) {
      EXPECT_EQ(CheckBatches(*(*task)->EvalBatches(split), c.options.batching, c.why), 2) << c.why;
    }
    const data::NeighborSamplingOptions sampling = SamplingOf(c.options, Mode::kTrain, graph->summary());
    const data::BlockSizes bound = BlockBound(sampling, c.options.batch_size, graph->summary());
    for (const BatchShape& rung : (*task)->plan().train_rungs) {
      EXPECT_LE(rung.nodes, LeastPadded(bound).total_nodes()) << c.why;
      EXPECT_LE(rung.edges, bound.edges) << c.why;
    }
  }
}

TEST_F(BlockBudgetTest, RunsLearnAndCountWhatIsCut) {
  for (NodeCase& c : Cases()) {
    c.options.epochs = 20;
    const auto graph = Graph(c.graph);
    const std::string job = "job-" + std::to_string(graphs_);
    Recorder told;
    const auto outcome = Run(c.options, graph, job, told);
    ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
    EXPECT_LT(told.epochs.back().train_loss, told.epochs.front().train_loss) << c.why;
    EXPECT_EQ(told.progress.graphs, 20 * 240) << c.why << ": seeds, of which the budget takes none";
    ASSERT_TRUE(told.progress.look_ahead.has_value());
    EXPECT_GT(told.progress.look_ahead->cut_batches, 0) << c.why;
    const graphcache::ModeStats& train = told.cache.of(Mode::kTrain);
    EXPECT_EQ(train.hits + train.padded_hits + train.misses, 20 * 5) << c.why;
    EXPECT_EQ(train.eager_steps, 0) << c.why;
  }
}

// The budget affects what is drawn, so a resumed run must apply it in the same way.
TEST_F(BlockBudgetTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  spec::TrainOptions options = Job(spec::Architecture::kSage);
  options.checkpoint.every_steps = 3;
  const auto graph = Graph({});
  Recorder undisturbed;
  ASSERT_TRUE(Run(options, graph, "whole", undisturbed).ok());
  for (const int64_t stop_step : {2, 5, 13}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Recorder first, second;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, graph, job, first).ok());
    ASSERT_TRUE(Run(options, graph, job, second).ok());
    for (const std::string_view name : {kLastWeightsFile, kBestWeightsFile, kTestPredictionsFile}) {
      EXPECT_EQ(Artifact(job, name), Artifact("whole", name)) << stop_step << name;
    }
  }
}

TEST_F(BlockBudgetTest, OneThatNoBatchMeetsChangesNoBit) {
  constexpr int64_t kPlenty = 1'000'000;
  const auto graph = Graph({});
  // With a limit on nodes, the last hop of SAGE has rows of its own, and its sums then differ in their last bits.
  for (const auto& [architecture, max_nodes] :
       {std::pair(spec::Architecture::kSage, int64_t{0}), std::pair(spec::Architecture::kGcn, kPlenty)}) {
    const std::string name(spec::kArchitectureNames.Name(architecture));
    spec::TrainOptions free = Job(architecture);
    free.batching = {};
    Recorder with, without;
    ASSERT_TRUE(Run(Job(architecture, max_nodes, kPlenty), graph, name + "-bounded", with).ok());
    ASSERT_TRUE(Run(free, graph, name, without).ok());
    EXPECT_EQ(Artifact(name + "-bounded", kLastWeightsFile), Artifact(name, kLastWeightsFile)) << name;
    EXPECT_EQ(Artifact(name + "-bounded", kTestPredictionsFile), Artifact(name, kTestPredictionsFile)) << name;
    EXPECT_EQ(with.progress.look_ahead->cut_batches, 0) << name;
    EXPECT_EQ(with.progress.padding_nodes, without.progress.padding_nodes) << name;
    Recorder bounded;
    ASSERT_TRUE(Run(Job(architecture), graph, name + "-cut", bounded).ok());
    EXPECT_NE(Artifact(name + "-cut", kLastWeightsFile), Artifact(name, kLastWeightsFile)) << name;
  }
}

TEST_F(BlockBudgetTest, AnEvaluationDrawsAsTheRunDid) {
  const spec::TrainOptions options = Job(spec::Architecture::kSage);
  const auto graph = Graph({});
  Recorder told;
  const auto run = Run(options, graph, "job", told);
  ASSERT_TRUE(run.ok() && run->result) << run.status();
  const auto pass = runner_->EvaluateWeights({.options = options,
                                              .dataset = graph,
                                              .trained_on = std::nullopt,
                                              .rows = EvaluatedRows::kTest,
                                              .weights = Artifact("job", kBestWeightsFile),
                                              .source = "jobs/job",
                                              .predictions = true},
                                             [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->loss, run->result->best_test_loss);
  EXPECT_EQ(pass->predictions, Artifact("job", kTestPredictionsFile));
}

TEST_F(BlockBudgetTest, OneWithoutRoomForTheSeedsIsRefused) {
  const auto graph = Graph({});
  const auto told = [&](const spec::TrainOptions& options) {
    return std::string(runner_->CheckCompatible(options, graph->summary(), "spec.").message());
  };
  EXPECT_THAT(told(Job(spec::Architecture::kSage, 49)),
              HasSubstr("spec.batching.max_nodes: 49 is less than the 50 seeds that a batch may have; accepted: at "
                        "least 50"));
  EXPECT_EQ(told(Job(spec::Architecture::kSage, 50)), "");
  spec::TrainOptions links = Job(spec::Architecture::kSage, 100);
  links.loss = spec::Loss::kBce;
  links.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2}, .eval_negatives = 20};
  EXPECT_THAT(told(links), HasSubstr("spec.batching.max_nodes: 100 is less than the 150 seeds that a batch may have"));
}

}  // namespace
}  // namespace permafrost::train
