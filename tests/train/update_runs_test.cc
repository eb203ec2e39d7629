// Tests whole runs with all options of an update: averages, groups of batches, a learning rate that falls when
// validation stagnates, and fixed parameters.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/safetensors.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

class UpdateRunsTest : public RunnerTest {
 protected:
  static spec::TrainOptions Grouped() {
    spec::TrainOptions options = Options();
    options.model.dropout = 0.2;
    options.optimizer.accumulate_steps = 4;  // 9 batches per epoch: groups of 4, 4 and 1
    options.optimizer.ema_decay = 0.8;
    options.optimizer.schedule = spec::Schedule::kPlateau;
    options.optimizer.plateau_patience = 0;
    options.optimizer.plateau_threshold = 0.9;  // hardly any epoch counts as better
    options.optimizer.decay_factor = 0.5;
    options.optimizer.warmup_steps = 2;
    options.optimizer.max_grad_norm = 0.5;
    options.checkpoint.every_steps = 5;
    return options;
  }
  // Returns the tensors of a safetensors file of a job, by name.
  std::map<std::string, at::Tensor> Tensors(const std::string& job, const std::string& file) {
    const auto data = ReadFile(dir_.path() / job / file);
    EXPECT_TRUE(data.ok()) << data.status();
    const auto decoded = nn::DecodeSafetensors(data.ok() ? *data : "");
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    std::map<std::string, at::Tensor> tensors;
    if (!decoded.ok()) return tensors;
    for (const nn::NamedTensor& t : decoded->tensors) tensors[t.name] = t.value;
    return tensors;
  }
};

TEST_F(UpdateRunsTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  const spec::TrainOptions options = Grouped();
  Recorder undisturbed;
  const auto whole = Run(options, "whole", undisturbed);
  ASSERT_TRUE(whole.ok()) << whole.status();
  // The stops are before the first update (which creates the averages), within a group, at the end of a group, and
  // after an epoch.
  for (const int64_t stop_step : {2, 4, 6, 8, 9, 22, 36}) {
    const std::string job = "stopped-" + std::to_string(stop_step);
    Recorder first, second;
    first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, job, first).ok());
    const auto resumed = Run(options, job, second);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_THAT(second.log, HasSubstr("resumed from the checkpoint of step " + std::to_string(stop_step)));
    for (const std::string_view name : {kLastWeightsFile, kBestWeightsFile, kTestPredictionsFile}) {
      EXPECT_EQ(Artifact(job, name), Artifact("whole", name)) << stop_step << name;
    }
    EXPECT_EQ(resumed->result->final_test_metric, whole->result->final_test_metric);
    EXPECT_EQ(resumed->result->best_test_metric, whole->result->best_test_metric);
    std::vector<EpochMetrics> epochs = first.epochs;
    epochs.insert(epochs.end(), second.epochs.begin(), second.epochs.end());
    ASSERT_EQ(epochs.size(), undisturbed.epochs.size());
    for (size_t e = 0; e < epochs.size(); ++e) {
      EXPECT_EQ(epochs[e].valid_metric, undisturbed.epochs[e].valid_metric) << "epoch " << e + 1;
      EXPECT_EQ(epochs[e].learning_rate, undisturbed.epochs[e].learning_rate) << "epoch " << e + 1;
    }
  }
}

TEST_F(UpdateRunsTest, TheLearningRateFallsWhereValidationGetsNoBetter) {
  Recorder context;
  ASSERT_TRUE(Run(Grouped(), "job", context).ok());
  ASSERT_EQ(context.epochs.size(), 4U);
  EXPECT_EQ(context.epochs[0].learning_rate, 1e-2);
  EXPECT_EQ(context.epochs[1].learning_rate, 1e-2) << "the first epoch is the best so far";
  EXPECT_EQ(context.epochs[2].learning_rate, 5e-3);
  EXPECT_EQ(context.epochs[3].learning_rate, 2.5e-3);
  EXPECT_THAT(context.log, HasSubstr("the learning rate falls to 0.005 after epoch 2"));
}

// The checkpoint contains the optimizer's own count of updates.
TEST_F(UpdateRunsTest, AnEpochOfNineBatchesInGroupsOfFourHasThreeUpdates) {
  Recorder context;
  ASSERT_TRUE(Run(Grouped(), "job", context).ok());
  EXPECT_EQ(context.progress.step, 36) << "a step is a batch";
  auto optimizer = Tensors("job", "checkpoints/36/optimizer.safetensors");
  EXPECT_EQ(optimizer["step"].item<float>(), 4 * 3);
  EXPECT_EQ(optimizer["group_batches"].item<float>(), 0);
}

TEST_F(UpdateRunsTest, AveragesEvaluateAndAreExported) {
  spec::TrainOptions options = Grouped(), plain = Grouped();
  plain.optimizer.ema_decay = 0;
  options.optimizer.schedule = plain.optimizer.schedule = spec::Schedule::kConstant;
  options.optimizer.plateau_patience = plain.optimizer.plateau_patience = 10;
  options.optimizer.plateau_threshold = plain.optimizer.plateau_threshold = 1e-4;
  options.optimizer.decay_factor = plain.optimizer.decay_factor = 0.1;
  Recorder with, without;
  ASSERT_TRUE(Run(options, "averaged", with).ok());
  ASSERT_TRUE(Run(plain, "plain", without).ok());
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(with.epochs[e].train_loss, without.epochs[e].train_loss) << "training does not see them";
    EXPECT_NE(with.epochs[e].valid_metric, without.epochs[e].valid_metric) << "evaluation does";
  }
  const auto last = Tensors("averaged", "artifacts/last.safetensors"),
             raw = Tensors("plain", "artifacts/last.safetensors"),
             state = Tensors("averaged", "checkpoints/36/optimizer.safetensors");
  int averages = 0;
  for (const auto& [name, value] : last) {
    const auto average = state.find("average." + name);
    EXPECT_TRUE(at::equal(value, average == state.end() ? raw.at(name) : average->second)) << name;
    if (average == state.end()) continue;
    ++averages;
    EXPECT_FALSE(at::equal(value, raw.at(name))) << name;
  }
  EXPECT_GT(averages, 10);
}

TEST_F(UpdateRunsTest, FixedParametersAndTheirRunningStatisticsStay) {
  for (const spec::Architecture architecture : {spec::Architecture::kGine, spec::Architecture::kGcn}) {
    spec::TrainOptions options = Options();
    options.model.architecture = architecture;
    options.optimizer.weight_decay = 0.1;
    options.fixed_parameters = {"convs.0", "norms.0", "node_encoder"};
    const std::string job(spec::TraitsOf(architecture).name);
    const auto task = *Task::Create(options, graphs_, at::kCPU, 2, [] { return true; });
    const std::vector<nn::NamedTensor> begin = nn::Clone(task->tensors().All());
    Recorder context;
    const auto outcome = Run(options, job, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_THAT(context.log, HasSubstr("fixed tensors)"));
    const auto end = Tensors(job, "artifacts/last.safetensors");
    for (const nn::NamedTensor& t : begin) {
      const bool fixed = std::ranges::any_of(options.fixed_parameters,
                                             [&](const std::string& prefix) { return t.name.starts_with(prefix); });
      EXPECT_EQ(at::equal(end.at(t.name), t.value), fixed || t.name.ends_with(".eps")) << t.name;
    }
  }
}

TEST_F(UpdateRunsTest, WhatFixesNothingIsRefusedBeforeItRuns) {
  spec::TrainOptions options = Options();
  options.fixed_parameters = {"conv.0"};
  const absl::Status refused = runner_->CheckCompatible(options, graphs_->summary(), "spec.");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("spec.fixed_parameters: 'conv.0' begins the name of no parameter; there are "
                                           "convs.0, convs.1, edge_encoder"));
  options.fixed_parameters = {"convs.0"};
  EXPECT_TRUE(runner_->CheckCompatible(options, graphs_->summary(), "spec.").ok());
}

}  // namespace
}  // namespace permafrost::train
