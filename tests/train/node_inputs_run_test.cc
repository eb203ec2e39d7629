// Tests runs on one large graph whose nodes have no features, or whose model does not read the features.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "graph_runner.h"
#include "nn/safetensors.h"
#include "recorder.h"
#include "step_cases.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

class NodeInputsRunTest : public GraphRunnerTest {
 protected:
  NodeInputsRunTest() : GraphRunnerTest({.features = false}) {}
  static spec::TrainOptions Job(spec::NodeInputs inputs, bool sampled) {
    spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
    options.model.node_inputs = inputs;
    if (!sampled) options.nodes.fan_outs = {};
    options.epochs = sampled ? 6 : 40;
    options.checkpoint.every_seconds = 0;
    return options;
  }
};

TEST_F(NodeInputsRunTest, WithoutFeaturesEachNodeLearnsItsOwnUnlessTheJobSaysOtherwise) {
  Recorder context;
  const auto outcome = Run(Job(spec::NodeInputs::kAuto, false), "auto", context);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(context.log, HasSubstr("each of the 400 nodes begins with weights of its own (the graph has no node "
                                     "features)"));
  EXPECT_LT(context.epochs.back().train_loss, 0.7 * context.epochs.front().train_loss) << "it learns";
  const auto weights = nn::DecodeSafetensors(Artifact("auto", kLastWeightsFile));
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->tensors[0].name, "embedding.weight");
  EXPECT_EQ(weights->tensors[0].value.sizes(), (std::vector<int64_t>{400, 16}));

  Recorder same;
  ASSERT_TRUE(Run(Job(spec::NodeInputs::kLearned, false), "learned", same).ok());
  EXPECT_EQ(Artifact("auto", kTestPredictionsFile), Artifact("learned", kTestPredictionsFile));
  for (const auto& [inputs, line] :
       {std::pair(spec::NodeInputs::kDegree, "nodes begin with 1 in the column of their number of in-edges"),
        {spec::NodeInputs::kConstant, "nodes begin with 1 (the graph has no node features)"}}) {
    Recorder other;
    const auto ran = Run(Job(inputs, true), std::string(spec::kNodeInputsNames.Name(inputs)), other);
    ASSERT_TRUE(ran.ok()) << ran.status();
    EXPECT_THAT(other.log, HasSubstr(line));
  }
}

TEST_F(NodeInputsRunTest, FeaturesThatAreNotThereAreRefused) {
  const absl::Status refused =
      runner_->CheckCompatible(Job(spec::NodeInputs::kFeatures, true), graph_->summary(), "spec.");
  EXPECT_THAT(refused.message(), HasSubstr("spec.model.node_inputs: the dataset's nodes have no features; accepted: "
                                           "learned, degree, constant"));
}

TEST_F(NodeInputsRunTest, SampledRunsStoppedAnywhereEndBitEqual) {
  const spec::TrainOptions options = Job(spec::NodeInputs::kLearned, true);
  Recorder undisturbed;
  ASSERT_TRUE(Run(options, "whole", undisturbed).ok());
  for (const int64_t stop_step : {1, 7, 10}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Recorder first, second;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, job, first).ok());
    ASSERT_TRUE(Run(options, job, second).ok());
    EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact("whole", kLastWeightsFile)) << stop_step;
    EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact("whole", kTestPredictionsFile)) << stop_step;
  }
}

// Adam works as on a whole table. A node that no batch has drawn yet does not move. One that was drawn once keeps
// moving by its moments in every later step.
TEST_F(NodeInputsRunTest, AdamOfSampledNodesIsDense) {
  spec::TrainOptions options = Job(spec::NodeInputs::kLearned, true);
  options.epochs = 1;
  const auto table = [&](const std::string& job, int64_t steps) {
    Recorder context;
    context.stop = [steps](const Progress& p) { return p.step >= steps ? StopRequest::kDrain : StopRequest::kNone; };
    EXPECT_TRUE(Run(options, job, context).ok());
    const auto file = ReadFile(dir_.path() / job / "checkpoints" / std::to_string(steps) / "model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    return nn::DecodeSafetensors(*file)->tensors[0].value;
  };
  const at::Tensor after_one = table("one", 1), after_two = table("two", 2), after_three = table("three", 3);
  const at::Tensor first = (after_two - after_one).abs().sum(1).gt(0),
                   second = (after_three - after_two).abs().sum(1).gt(0);
  EXPECT_GT(first.sum().item<int64_t>(), 0);
  EXPECT_LT(first.sum().item<int64_t>(), 400) << "others were not drawn yet";
  EXPECT_TRUE(second.logical_or(first.logical_not()).all().item<bool>()) << "what moved once moves on";
}

// Layer-wise evaluation over the whole graph equals one step on the whole graph.
TEST_F(NodeInputsRunTest, LayerWiseEvaluationSeesWhatIsLearned) {
  spec::TrainOptions sampled = Job(spec::NodeInputs::kLearned, true);
  sampled.epochs = 1;
  sampled.nodes.fan_outs = {-1, -1};
  spec::TrainOptions layer_wise = sampled;
  layer_wise.nodes.layer_wise_evaluation = true;
  Recorder one, other;
  ASSERT_TRUE(Run(sampled, "sampled", one).ok());
  ASSERT_TRUE(Run(layer_wise, "layer-wise", other).ok());
  EXPECT_NEAR(one.epochs[0].valid_loss, other.epochs[0].valid_loss, 1e-5);
}

}  // namespace
}  // namespace permafrost::train
