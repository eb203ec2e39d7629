// Tests that graphs that the CPU's operators cannot index are refused before anything is read.
#include "train/planning/run_size.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/status.h"
#include "graph_runner.h"
#include "nn/ops/segment_ops.h"
#include "recorder.h"
#include "step_cases.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/step_inputs.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

constexpr int64_t kTooMany = 2'147'483'647;

TEST(IndexLimits, OfTheWholeGraphInEveryStep) {
  const struct {
    const char* why;
    spec::Architecture architecture;
    int64_t nodes, edges;
    bool sampled, trains, own_device;
    bool refused;
  } kCases[] = {
      {"the most edges that can be", spec::Architecture::kSage, 1000, kTooMany - 1, false, true, false, false},
      {"one more", spec::Architecture::kSage, 1000, kTooMany, false, true, false, true},
      {"as many nodes", spec::Architecture::kGcn, kTooMany, 5, false, true, false, true},
      {"sampled blocks are small", spec::Architecture::kSage, 1000, kTooMany, true, true, false, false},
      {"evaluation needs no transpose", spec::Architecture::kGatv2, 1000, kTooMany, false, false, false, false},
      {"but GINE's sum counts edges by 32 bits", spec::Architecture::kGine, 1000, kTooMany, false, false, false, true},
      {"other devices make no transpose", spec::Architecture::kSage, 1000, kTooMany, false, true, true, false},
  };
  for (const auto& c : kCases) {
    spec::TrainOptions options = NodeJob(c.architecture);
    if (!c.sampled) options.nodes.fan_outs = {};
    data::GraphSummary graph;
    graph.nodes = c.nodes;
    graph.edges = c.edges;
    MemoryLimits limits = kNoLimits;
    limits.trains = c.trains;
    if (c.own_device) limits.device = limits.process;
    const absl::Status status = CheckWholeGraphIndex(options, graph, limits, "spec.");
    EXPECT_EQ(status.ok(), !c.refused) << c.why << ": " << status;
    if (status.ok()) continue;
    EXPECT_EQ(GetViolations(status).at(0).field, "spec.neighbor_sampling.fan_outs") << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr("accepted: fan-outs")) << c.why;
  }
}

// Admission refuses such a job in one line.
TEST(IndexLimits, AJobOnSuchAGraphIsRefused) {
  data::GraphSummary graph;
  graph.nodes = 1'000'000;
  graph.edges = 3'000'000'000;
  graph.num_targets = 1;
  graph.integer_labels = true;
  graph.max_label = 2;
  graph.split_nodes = {100, 10, 10};
  spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
  options.model.node_inputs = spec::NodeInputs::kConstant;
  options.nodes.fan_outs = {};
  EXPECT_THAT(std::string(Task::Check(options, graph, kNoLimits, "spec.").message()),
              HasSubstr("1000000 nodes and 3000000000 edges are beyond what the CPU's operators index"));
  options.nodes.fan_outs = {5, 5};
  EXPECT_EQ(Task::Check(options, graph, kNoLimits, "spec."), absl::OkStatus());
}

TEST(IndexLimits, OfABatchOfASet) {
  Violations violations;
  CheckBatchIndex({1000, kTooMany - 1, 5}, kNoLimits, "spec.", violations);
  EXPECT_TRUE(violations.empty());
  CheckBatchIndex({1000, kTooMany, 5}, kNoLimits, "spec.", violations);
  EXPECT_EQ(GetViolations(violations.ToStatus()).at(0).field, "spec.batch_size");
}

class NoTransposeTest : public GraphRunnerTest {
 protected:
  NoTransposeTest() : GraphRunnerTest({}) {}
};

TEST_F(NoTransposeTest, AnEvaluationOfTheWholeGraphMakesNone) {
  for (const spec::Architecture architecture :
       {spec::Architecture::kSage, spec::Architecture::kGcn, spec::Architecture::kGin, spec::Architecture::kGatv2}) {
    spec::TrainOptions options = NodeJob(architecture);
    options.nodes.fan_outs = {};
    PlanContext context;
    context.limits.trains = false;
    const auto evaluates = *Task::Create(
        options, graph_, at::kCPU, 2, [] { return true; }, context);
    const auto trains = TaskOf(options);
    const auto predict = [](Task& task) {
      const at::NoGradGuard no_grad;
      const auto batches = task.EvalBatches(data::Split::kTest);
      const auto inputs = (*batches->Next())->PadDynamic(0);
      return std::pair(NodeBlockOf(**inputs).transpose.offsets.defined(),
                       task.Forward(**inputs, Mode::kEval).prediction);
    };
    const auto [has_one, predicted] = predict(*evaluates);
    const auto [has_other, wanted] = predict(*trains);
    EXPECT_FALSE(has_one);
    EXPECT_TRUE(has_other);
    EXPECT_TRUE(at::equal(predicted, wanted)) << static_cast<int>(architecture);
  }
}

}  // namespace
}  // namespace permafrost::train
