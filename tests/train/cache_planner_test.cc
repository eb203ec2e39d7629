// Compares cache plans of real jobs with what the jobs then do.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "device/backend.h"
#include "train/recorder.h"
#include "train/runner_fixture.h"
#include "train/tiny_graph.h"

namespace permafrost::train {
namespace {

using graphcache::PlanRow;
using spec::OnMiss;
using spec::Policy;
using spec::PolicyOptions;
using spec::Shapes;

bool Always() { return true; }

class CachePlannerTest : public RunnerTest {};

// Expects that the job's training did what the plan said, and that its evaluation had the planned executables.
void ExpectAsPlanned(const PlanRow& row, const graphcache::Snapshot& cache) {
  const graphcache::ModeStats& did = cache.of(Mode::kTrain);
  EXPECT_EQ(row.train_executables, did.entries);
  EXPECT_EQ(row.eval_executables, cache.of(Mode::kEval).entries);
  EXPECT_EQ(row.captures, did.captures);
  EXPECT_EQ(row.replayed, did.hits + did.padded_hits);
  EXPECT_EQ(row.padded, did.padded_hits);
  EXPECT_EQ(row.eager, did.eager_steps);
  EXPECT_EQ(row.padding_rows, did.padding_nodes + did.padding_edges);
}

TEST_F(CachePlannerTest, AJobDoesWhatItsPlanSays) {
  const std::vector<PolicyOptions> policies{
      {.policy = Policy::kFreeze, .shapes = Shapes::kAuto},
      {.policy = Policy::kFreeze, .shapes = Shapes::kLadder, .rungs = 3},
      {.policy = Policy::kFreeze, .freeze_at = 10, .on_miss = OnMiss::kPad, .shapes = Shapes::kExact},
      {.policy = Policy::kFreeze, .freeze_at = 10, .on_miss = OnMiss::kTransient, .shapes = Shapes::kExact},
      {.policy = Policy::kAlways, .shapes = Shapes::kExact},
      {.policy = Policy::kNever},
  };
  for (size_t i = 0; i < policies.size(); ++i) {
    SCOPED_TRACE(i);
    spec::TrainOptions options = Options();
    options.graph_cache = policies[i];
    const auto plan = runner_->PlanCache({.options = options, .dataset = graphs_, .measure = false}, Always);
    ASSERT_EQ(plan.status(), absl::OkStatus());
    EXPECT_FALSE(plan->costs.has_value());
    Recorder recorder;
    ASSERT_EQ(Run(options, absl::StrCat("job-", i), recorder).status(), absl::OkStatus());
    const graphcache::ModeStats& did = recorder.cache.of(Mode::kTrain);
    const PlanRow& row = plan->rows.front();
    EXPECT_EQ(row.options, options.graph_cache);
    EXPECT_EQ(plan->schedules.front().batching, "random");
    EXPECT_EQ(Batches(plan->schedules.front()), recorder.progress.step);
    ExpectAsPlanned(row, recorder.cache);
    EXPECT_EQ(row.real_rows, did.nodes + did.edges);
  }
}

TEST_F(CachePlannerTest, AJobKeepsWithinTheLimitAsItsPlanSays) {
  const std::vector<PolicyOptions> policies{
      {.policy = Policy::kFreeze, .shapes = Shapes::kLadder, .rungs = 8, .max_executables = 5},
      {.policy = Policy::kFreeze, .freeze_at = 20, .shapes = Shapes::kExact, .max_executables = 9},
      {.policy = Policy::kAlways, .shapes = Shapes::kExact, .max_executables = 6},
      {.policy = Policy::kAlways, .shapes = Shapes::kExact, .max_executables = 13},
      {.policy = Policy::kFreeze, .shapes = Shapes::kAuto, .max_executables = 1},
  };
  for (size_t i = 0; i < policies.size(); ++i) {
    SCOPED_TRACE(i);
    spec::TrainOptions options = Options();
    options.graph_cache = policies[i];
    const auto plan = runner_->PlanCache({.options = options, .dataset = graphs_, .measure = false}, Always);
    ASSERT_EQ(plan.status(), absl::OkStatus());
    Recorder recorder;
    ASSERT_EQ(Run(options, absl::StrCat("job-", i), recorder).status(), absl::OkStatus());
    const graphcache::ModeStats& did = recorder.cache.of(Mode::kTrain);
    const PlanRow& row = plan->rows.front();
    EXPECT_LE(did.entries + recorder.cache.of(Mode::kEval).entries, policies[i].max_executables);
    ExpectAsPlanned(row, recorder.cache);
  }
}

TEST_F(CachePlannerTest, AJobThatSamplesHasTheLadderThatItsPlanSays) {
  const auto graph = WriteTinyGraph(dir_.path() / "graph");
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.batch_size = 13;
  options.epochs = 2;
  options.checkpoint.every_seconds = 0;
  options.nodes.fan_outs.assign(static_cast<size_t>(options.model.num_layers), 3);
  std::set<int64_t> lengths;
  for (const int64_t rungs : {0, 1, 2, 3, 64}) {
    SCOPED_TRACE(rungs);
    options.graph_cache = {.shapes = Shapes::kLadder, .rungs = rungs};
    const auto plan = runner_->PlanCache({.options = options, .dataset = graph, .measure = false}, Always);
    ASSERT_EQ(plan.status(), absl::OkStatus());
    Recorder recorder;
    const auto ended = runner_->Run(
        {.options = options, .dataset = graph, .job_directory = dir_.path() / absl::StrCat("sampled-", rungs)},
        recorder);
    ASSERT_EQ(ended.status(), absl::OkStatus());
    const graphcache::ModeStats& did = recorder.cache.of(Mode::kTrain);
    const PlanRow& row = plan->rows.front();
    EXPECT_LE(did.rungs, spec::RungsOf(options.graph_cache));
    EXPECT_EQ(row.train_executables, did.rungs);
    EXPECT_EQ(row.train_executables, did.entries);
    EXPECT_EQ(row.eval_executables, recorder.cache.of(Mode::kEval).entries);
    EXPECT_EQ(row.captures, did.captures);
    EXPECT_EQ(row.replayed, did.hits + did.padded_hits) << "as many batches as there are";
    EXPECT_EQ(recorder.cache.planned_rungs, std::ssize(plan->schedules.front().rungs));
    EXPECT_GT(plan->schedules.front().sampled_shapes, 1);
    lengths.insert(did.rungs);
  }
  EXPECT_GE(lengths.size(), 4U) << "the rungs that were asked for";
}

TEST_F(CachePlannerTest, ABudgetIsProposedToo) {
  spec::TrainOptions options = Options();
  const auto plan = runner_->PlanCache({.options = options, .dataset = graphs_, .measure = false}, Always);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  ASSERT_EQ(plan->schedules.size(), 3U);
  const graphcache::PlannedSchedule& budget = plan->schedules[2];
  EXPECT_EQ(budget.batching, "budget");
  // A job may use the proposed budget. It has these batches if batch_size does not limit the graphs further.
  options.batch_size = spec::kMaxBatchSize;
  options.batching = {
      .kind = spec::BatchingKind::kBudget, .max_nodes = budget.max_nodes, .max_edges = budget.max_edges};
  Recorder recorder;
  ASSERT_EQ(Run(options, "budget", recorder).status(), absl::OkStatus());
  EXPECT_EQ(Batches(budget), recorder.progress.step);
  const auto asked = runner_->PlanCache({.options = options, .dataset = graphs_, .measure = false}, Always);
  ASSERT_EQ(asked.status(), absl::OkStatus());
  EXPECT_EQ(asked->schedules.front().train, budget.train);
  EXPECT_EQ(asked->schedules.size(), 3U) << "once";
}

TEST_F(CachePlannerTest, MeasuresOnTheDevice) {
  const auto plan = runner_->PlanCache({.options = Options(), .dataset = graphs_, .measure = true}, Always);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  ASSERT_TRUE(plan->costs.has_value()) << plan->no_costs_reason;
  const graphcache::StepCosts& costs = *plan->costs;
  EXPECT_GT(costs.replay.Of(100), 0);
  EXPECT_GT(costs.eager.Of(100), 0);
  EXPECT_GE(costs.replay.fixed, 0);
  EXPECT_GE(costs.padding_row, 0);
  EXPECT_GT(costs.capture, 0);
  EXPECT_GT(costs.eval_capture, 0);
  EXPECT_GT(costs.dynamic_capture, 0);
  EXPECT_GT(costs.entry_bytes, 0);
  EXPECT_GT(costs.shared_bytes, 0);
  for (const PlanRow& row : plan->rows) EXPECT_TRUE(row.bytes && row.train_seconds);
  // The plan predicts the memory of the executables that a job captures.
  Recorder recorder;
  spec::TrainOptions options = Options();
  ASSERT_EQ(Run(options, "job", recorder).status(), absl::OkStatus());
  const auto& cache = recorder.cache;
  const double bytes =
      static_cast<double>(cache.shared_bytes + cache.of(Mode::kTrain).entry_bytes + cache.of(Mode::kEval).entry_bytes);
  EXPECT_NEAR(static_cast<double>(*plan->rows.front().bytes), bytes, 0.5 * bytes);
}

// Admission counts at least as much memory as the job's executables take.
TEST_F(CachePlannerTest, NoExecutableTakesMoreThanAdmissionCounts) {
  for (const spec::Lowering lowering : {spec::Lowering::kAuto, spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
    for (const int64_t layers : {1, 4, 8}) {
      spec::TrainOptions options = Options();
      options.model.num_layers = layers;
      options.model.dropout = 0.5;
      options.model.lowering = lowering;
      const auto plan = runner_->PlanCache({.options = options, .dataset = graphs_, .measure = true}, Always);
      ASSERT_EQ(plan.status(), absl::OkStatus());
      ASSERT_TRUE(plan->costs.has_value()) << plan->no_costs_reason;
      const int64_t most = device::ExecutableBytes(layers, lowering == spec::Lowering::kAuto);
      const graphcache::StepCosts& costs = *plan->costs;
      EXPECT_LE(std::max(costs.entry_bytes, costs.eval_entry_bytes), most) << layers;
      EXPECT_LE(std::max(costs.dynamic_entry_bytes, costs.dynamic_eval_entry_bytes), most) << layers;
      EXPECT_GT(4 * costs.entry_bytes, most) << layers << " layers: far more than it takes";
    }
  }
}

TEST_F(CachePlannerTest, AStopIsHonoured) {
  for (const bool measure : {false, true}) {
    const auto plan =
        runner_->PlanCache({.options = Options(), .dataset = graphs_, .measure = measure}, [] { return false; });
    EXPECT_TRUE(absl::IsCancelled(plan.status())) << plan.status();
  }
}

TEST_F(CachePlannerTest, PlansJobsOnOneLargeGraph) {
  const auto graph = WriteTinyGraph(dir_.path() / "graph");
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.batch_size = 8;
  options.epochs = 3;
  auto plan = runner_->PlanCache({.options = options, .dataset = graph, .measure = true}, Always);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->schedules.front().batching, "whole graph");
  EXPECT_EQ(Batches(plan->schedules.front()), 3);
  EXPECT_THAT(plan->no_dynamic_reason, testing::HasSubstr("whole graph"));
  EXPECT_EQ(plan->rows[static_cast<size_t>(plan->recommended)].train_executables, 1);
  EXPECT_EQ(plan->rows[static_cast<size_t>(plan->recommended)].padding_rows, 0);

  options.nodes.fan_outs.assign(static_cast<size_t>(options.model.num_layers), 3);
  plan = runner_->PlanCache({.options = options, .dataset = graph, .measure = true}, Always);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->schedules.front().batching, "sampled");
  EXPECT_TRUE(plan->schedules.front().estimated);
  EXPECT_TRUE(plan->costs.has_value()) << plan->no_costs_reason;
  // By measured times, any sealed row may be the fastest. By counts, it is the dynamic one.
  plan = runner_->PlanCache({.options = options, .dataset = graph, .measure = false}, Always);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->rows[static_cast<size_t>(plan->recommended)].train_executables, 1) << plan->reason;
}

}  // namespace
}  // namespace permafrost::train
