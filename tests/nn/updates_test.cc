// Updates from more than the gradients of one batch, and parameters that updates leave alone.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {
namespace {

using testing::HasSubstr;

std::vector<at::Tensor> GradientsOf(const TensorSet& tensors, int64_t step) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& p : tensors.parameters()) gradients.push_back(at::randn_like(p.value.detach()));
  return gradients;
}

void AddSome(TensorSet& tensors) {
  at::manual_seed(1);
  tensors.AddParameter("convs.0.lin.weight", at::randn({5, 7}));
  tensors.AddParameter("convs.0.lin.bias", at::randn({5}));
  tensors.AddParameter("convs.1.lin.weight", at::randn({3, 5}));
  tensors.AddParameter("convs.10.lin.weight", at::randn({3, 3}));
  tensors.AddParameter("norms.0.module.weight", at::randn({5}));
}

spec::OptimizerOptions Options(spec::OptimizerAlgorithm algorithm) {
  spec::OptimizerOptions options{.algorithm = algorithm, .learning_rate = 0.05, .weight_decay = 0.1};
  if (algorithm == spec::OptimizerAlgorithm::kSgd) options.momentum = 0.9;
  return options;
}

constexpr spec::OptimizerAlgorithm kAlgorithms[] = {spec::OptimizerAlgorithm::kAdam, spec::OptimizerAlgorithm::kAdamW,
                                                    spec::OptimizerAlgorithm::kSgd};

TEST(Updates, AGroupsIsTheOneOfItsMeanGradient) {
  for (const spec::OptimizerAlgorithm algorithm : kAlgorithms) {
    spec::OptimizerOptions options = Options(algorithm);
    options.max_grad_norm = 0.5;  // applies to the mean gradient, not to a batch's
    options.ema_decay = 0.5;
    spec::OptimizerOptions grouped = options;
    grouped.accumulate_steps = 3;
    TensorSet first, second;
    AddSome(first);
    AddSome(second);
    Optimizer whole(options, first.parameters()), parts(grouped, second.parameters());
    int64_t step = 0;
    for (const int64_t batches : {3, 3, 2, 3, 1}) {  // the third and the last group are the rest of an epoch
      std::vector<at::Tensor> mean = GradientsOf(first, step);
      for (int64_t b = 0; b < batches; ++b) {
        const std::vector<NamedTensor> before = Clone(second.All());
        const std::vector<at::Tensor> gradients = GradientsOf(first, step + b);
        for (size_t i = 0; b > 0 && i < mean.size(); ++i) mean[i] = mean[i] + gradients[i];
        parts.SetEndsGroup(b + 1 == batches);
        parts.Step(gradients);
        for (size_t i = 0; b + 1 < batches && i < before.size(); ++i) {
          EXPECT_TRUE(at::equal(before[i].value, second.All()[i].value)) << "the group goes on";
        }
      }
      step += batches;
      for (at::Tensor& gradient : mean) gradient = gradient / static_cast<double>(batches);
      whole.Step(mean);
      for (size_t i = 0; i < mean.size(); ++i) {
        EXPECT_TRUE(at::allclose(first.All()[i].value, second.All()[i].value, 1e-5, 1e-6))
            << spec::kOptimizerNames.Name(algorithm) << ", step " << step << ", " << first.All()[i].name;
        EXPECT_TRUE(at::allclose(whole.averages()[i], parts.averages()[i], 1e-5, 1e-6));
      }
    }
  }
}

TEST(Updates, ASkippedBatchThatEndsAGroupLeavesTheOneOfTheOthers) {
  for (const spec::OptimizerAlgorithm algorithm : kAlgorithms) {
    spec::OptimizerOptions options = Options(algorithm);
    options.max_grad_norm = 0.5;
    options.ema_decay = 0.5;
    options.accumulate_steps = 3;
    TensorSet first, second;
    AddSome(first);
    AddSome(second);
    Optimizer whole(options, first.parameters()), skips(options, second.parameters());
    const auto expect_equal = [&](const char* when) {
      for (size_t i = 0; i < first.All().size(); ++i) {
        EXPECT_TRUE(at::equal(first.All()[i].value, second.All()[i].value)) << when << ", " << first.All()[i].name;
      }
      for (size_t i = 0; i < whole.state().size(); ++i) {
        EXPECT_TRUE(at::equal(whole.state()[i].value, skips.state()[i].value)) << when << ", " << whole.state()[i].name;
      }
    };
    for (const int64_t step : {0, 2}) {
      for (int64_t b = 0; b < 2; ++b) {
        whole.SetEndsGroup(b == 1);
        whole.Step(GradientsOf(first, step + b));
        skips.SetEndsGroup(false);
        skips.Step(GradientsOf(first, step + b));
        if (b == 0) skips.SkipBatch();  // skipping a batch within a group does nothing
      }
      skips.SetEndsGroup(true);
      skips.SkipBatch();
      expect_equal("two batches and a skipped one");
    }
    skips.SkipBatch();
    expect_equal("a group of a skipped batch alone");
    skips.Step(GradientsOf(first, 4));
    whole.Step(GradientsOf(first, 4));
    expect_equal("the next group");
    skips.SetEndsGroup(false);
    skips.Step(GradientsOf(first, 5));
    skips.SetEndsGroup(true);
    skips.DropGroup();
    expect_equal("a group that is dropped");
  }
}

// The reference is torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
TEST(Updates, AveragesFollowTheWeights) {
  spec::OptimizerOptions options = Options(spec::OptimizerAlgorithm::kAdam);
  options.ema_decay = 0.9;
  TensorSet tensors;
  AddSome(tensors);
  Optimizer optimizer(options, tensors.parameters());
  EXPECT_FALSE(optimizer.has_averages());
  std::vector<at::Tensor> want;
  for (int64_t step = 0; step < 5; ++step) {
    optimizer.Step(GradientsOf(tensors, step));
    for (size_t i = 0; i < tensors.parameters().size(); ++i) {
      const at::Tensor value = tensors.parameters()[i].value.detach();
      if (step == 0) {
        want.push_back(value.clone());
      } else {
        want[i].lerp_(value, 1 - 0.9);
      }
      EXPECT_TRUE(at::allclose(optimizer.averages()[i], want[i], 1e-6, 1e-7)) << step;
      EXPECT_EQ(at::equal(optimizer.averages()[i], value), step == 0) << "they are no copies";
    }
  }
  EXPECT_TRUE(optimizer.has_averages());
}

TEST(Updates, WeightDecayShrinksWhatItIsOf) {
  const struct {
    spec::WeightDecayOf of;
    std::vector<bool> decayed;
  } kCases[] = {{spec::WeightDecayOf::kAll, {true, true, true, true, true}},
                {spec::WeightDecayOf::kMatrices, {true, false, true, true, false}},
                {spec::WeightDecayOf::kFirstLayer, {true, true, false, false, false}}};
  for (const spec::OptimizerAlgorithm algorithm : kAlgorithms) {
    for (const auto& c : kCases) {
      spec::OptimizerOptions options = Options(algorithm), all = options, none = options;
      options.weight_decay_of = c.of;
      none.weight_decay = 0;
      TensorSet some, with, without;
      for (TensorSet* tensors : {&some, &with, &without}) AddSome(*tensors);
      Optimizer own(options, some.parameters()), full(all, with.parameters()), bare(none, without.parameters());
      // Adam's first step depends on the sign of the gradient alone, so three steps are taken.
      for (int64_t step = 0; step < 3; ++step) {
        for (Optimizer* optimizer : {&own, &full, &bare}) optimizer->Step(GradientsOf(some, step));
      }
      for (size_t i = 0; i < c.decayed.size(); ++i) {
        const at::Tensor got = some.All()[i].value;
        EXPECT_EQ(at::equal(got, with.All()[i].value), c.decayed[i]) << spec::kWeightDecayOfNames.Name(c.of) << i;
        EXPECT_EQ(at::equal(got, without.All()[i].value), !c.decayed[i]) << spec::kWeightDecayOfNames.Name(c.of) << i;
      }
    }
  }
}

TEST(FixedParameters, AreBuffersFromThenOn) {
  TensorSet tensors;
  AddSome(tensors);
  const int64_t values = tensors.num_parameter_values();
  ASSERT_TRUE(tensors.Fix({"convs.1", "norms."}).ok());
  std::vector<std::string> trained;
  for (const NamedTensor& p : tensors.parameters()) trained.push_back(p.name);
  EXPECT_THAT(trained, testing::ElementsAre("convs.0.lin.weight", "convs.0.lin.bias", "convs.10.lin.weight"))
      << "convs.1 is not convs.10";
  EXPECT_EQ(tensors.All().size(), 5U);
  EXPECT_EQ(tensors.num_parameter_values(), values);
  EXPECT_EQ(tensors.fixed_parameters(), 2);
  for (const NamedTensor& b : tensors.buffers()) EXPECT_FALSE(b.value.requires_grad()) << b.name;
}

TEST(FixedParameters, WhatFixesNothingOrAllIsRefused) {
  TensorSet tensors;
  AddSome(tensors);
  const absl::Status none = tensors.Fix({"convs.1", "convs.2"});
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("'convs.2' begins the name of no parameter; there are convs.0, convs.1, "
                                        "convs.10, norms.0"));
  EXPECT_THAT(tensors.Fix({""}).message(), HasSubstr("begins the name of no parameter"));
  EXPECT_THAT(tensors.Fix({"convs", "norms"}).message(), HasSubstr("at least one is to be trained"));
  EXPECT_EQ(tensors.parameters().size(), 5U) << "nothing is changed";
}

}  // namespace
}  // namespace permafrost::nn
