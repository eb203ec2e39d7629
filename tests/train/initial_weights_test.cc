#include "train/loop/initial_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "nn/safetensors.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InitialWeightsTest : public RunnerTest {
 protected:
  static spec::TrainOptions From(const std::string& job, bool by_name = false) {
    spec::TrainOptions options = Options();
    options.seed = 8;
    options.init_from = {.job = JobId(job), .by_name = by_name};
    return options;
  }
  // Stores the weights as the admission of a job does.
  void Give(const std::string& weights, const std::string& job) {
    fs::create_directories(dir_.path() / job);
    ASSERT_TRUE(WriteFileAtomic(dir_.path() / job / kInitialWeightsFile, weights).ok());
  }
  // Returns the refusal of `weights` for a job whose model has two layers.
  std::string Refusal(const std::string& weights, bool by_name = false) {
    const absl::Status status =
        runner_->CheckInitialWeights(From("first", by_name), graphs_->summary(), weights, "spec.");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  // Returns the weights of a job that took no step.
  std::string First() {
    Recorder context;
    EXPECT_TRUE(Run(Options(), "first", context).ok());
    return Artifact("first", kBestWeightsFile);
  }
};

TEST_F(InitialWeightsTest, AJobBeginsWithThemWhateverBecomesOfTheirSource) {
  const std::string weights = First();
  const spec::TrainOptions options = From("first");
  ASSERT_EQ(runner_->CheckInitialWeights(options, graphs_->summary(), weights, "spec."), absl::OkStatus());
  Give(weights, "whole");
  Recorder undisturbed;
  ASSERT_TRUE(Run(options, "whole", undisturbed).ok());
  EXPECT_THAT(undisturbed.log, HasSubstr("begins with the weights of jobs/first: "));
  Recorder drawn;
  spec::TrainOptions without = options;
  without.init_from = {};
  ASSERT_TRUE(Run(without, "drawn", drawn).ok());
  EXPECT_LT(undisturbed.epochs[0].train_loss, drawn.epochs[0].train_loss) << "it knows what the other has learned";

  fs::remove_all(dir_.path() / "first");
  for (const int64_t stop_step : {0, 1, 12}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Give(weights, job);
    Recorder first, second;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, job, first).ok());
    ASSERT_TRUE(Run(options, job, second).ok());
    EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact("whole", kLastWeightsFile)) << stop_step;
  }
}

TEST_F(InitialWeightsTest, StrictNamesTheFirstThatDiffersAndHowMany) {
  auto file = *nn::DecodeSafetensors(First());
  const auto encode = [&](const std::vector<nn::NamedTensor>& tensors) { return nn::EncodeSafetensors(tensors, {}); };
  auto other = file.tensors;
  other[3].value = at::zeros({2, 3});
  const std::string of_shape = Refusal(encode(other));
  EXPECT_THAT(of_shape, HasSubstr("spec.init_from: the weights of jobs/first are not the model's: " + other[3].name +
                                  " is Float[2, 3], the model has "));
  EXPECT_THAT(of_shape, HasSubstr("; 1 tensor differs (by_name takes those that fit)"));
  other = file.tensors;
  other.push_back({"extra", at::zeros({1})});
  other.erase(other.begin());
  const std::string of_names = Refusal(encode(other));
  EXPECT_THAT(of_names, HasSubstr(file.tensors[0].name + " is not among them; 2 tensors differ"));
  EXPECT_THAT(Refusal("no such file"), HasSubstr("jobs/first is no safetensors file of weights"));
}

TEST_F(InitialWeightsTest, ByNameTakesThoseThatFitAndSaysWhichDoNot) {
  auto file = *nn::DecodeSafetensors(First());
  const spec::TrainOptions options = From("first", /*by_name=*/true);
  const auto task = *Task::Create(options, graphs_, at::kCPU, 2, [] { return true; });
  const size_t all = file.tensors.size();
  const std::string gone = file.tensors[0].name, bent = file.tensors[1].name;
  file.tensors[1].value = at::zeros({1, 1, 1});
  file.tensors.erase(file.tensors.begin());
  file.tensors.push_back({"extra", at::zeros({1})});
  const std::vector<nn::NamedTensor> before = nn::Clone(task->tensors().All());
  const auto line = TakeWeights(nn::EncodeSafetensors(file.tensors, {}), options.init_from, task->tensors());
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(*line, "begins with the weights of jobs/first: " + std::to_string(all - 2) + " tensors taken, 2 left (" +
                       bent + ", extra), 2 of the model missing (" + gone + ", " + bent +
                       "); they do not say what categories stand for: their rows are taken as they stand");
  const std::vector<nn::NamedTensor> after = task->tensors().All();
  for (const nn::NamedTensor& t : before) {
    const at::Tensor now = std::ranges::find(after, t.name, &nn::NamedTensor::name)->value;
    const auto given = std::ranges::find(file.tensors, t.name, &nn::NamedTensor::name);
    if (t.name == gone || t.name == bent) {
      EXPECT_TRUE(at::equal(now, t.value)) << t.name;
    } else {
      EXPECT_TRUE(at::equal(now, given->value)) << t.name;
    }
  }
  EXPECT_THAT(Refusal(nn::EncodeSafetensors({{"extra", at::zeros({1})}}, {}), /*by_name=*/true),
              HasSubstr("none of the 1 tensors of jobs/first fits the model"));
}

// Even a model that fits in no memory can be checked, because its tensors have no values.
TEST_F(InitialWeightsTest, WhatIsCheckedAtSubmitTakesNoMemory) {
  data::GraphSummary graph;
  graph.nodes = 3'000'000'000;
  graph.edges = 9'000'000'000;
  graph.num_targets = 1;
  graph.integer_labels = true;
  graph.max_label = 2;
  graph.split_nodes = {100, 10, 10};
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.loss = spec::Loss::kCrossEntropy;
  options.model.node_inputs = spec::NodeInputs::kLearned;
  options.fixed_parameters = {"convs.0"};
  EXPECT_EQ(CheckFixedParameters(options, graph, "spec."), absl::OkStatus());
  options.fixed_parameters = {"convs.9"};
  EXPECT_THAT(std::string(CheckFixedParameters(options, graph, "spec.").message()),
              HasSubstr("spec.fixed_parameters: 'convs.9' begins the name of no parameter"));
  options.init_from = {.job = JobId("first")};
  EXPECT_THAT(
      std::string(CheckInitialWeights(options, graph, nn::EncodeSafetensors({{"extra", at::zeros({1})}}, {}), "spec.")
                      .message()),
      HasSubstr("spec.init_from: the weights of jobs/first are not the model's: embedding.weight is not among them"));
}

}  // namespace
}  // namespace permafrost::train
