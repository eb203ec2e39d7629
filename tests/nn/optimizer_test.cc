#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace permafrost::nn {
namespace {

// Adam and AdamW as in their papers, for a single value.
double ReferenceAfter(int steps, const spec::OptimizerOptions& o, double value, double gradient) {
  double m = 0, v = 0;
  for (int t = 1; t <= steps; ++t) {
    double g = gradient * t;
    if (o.algorithm == spec::OptimizerAlgorithm::kAdam) g += o.weight_decay * value;
    if (o.algorithm == spec::OptimizerAlgorithm::kAdamW) value -= o.learning_rate * o.weight_decay * value;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    value -= o.learning_rate * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
  return value;
}

TEST(Optimizer, FollowsThePapers) {
  const spec::OptimizerOptions kCases[] = {{spec::OptimizerAlgorithm::kAdam, 1e-2, 0},
                                           {spec::OptimizerAlgorithm::kAdam, 1e-2, 0.1},
                                           {spec::OptimizerAlgorithm::kAdamW, 1e-2, 0.1}};
  for (const spec::OptimizerOptions& options : kCases) {
    TensorSet tensors;
    const at::Tensor value = tensors.AddParameter("w", at::full({3}, 1.5, at::kDouble));
    Optimizer optimizer(options, tensors.parameters());
    for (int t = 1; t <= 5; ++t) {
      optimizer.Step({at::full({3}, 0.3 * t, at::kDouble)});
    }
    EXPECT_NEAR(value[1].item<double>(), ReferenceAfter(5, options, 1.5, 0.3), 1e-9)
        << spec::kOptimizerNames.Name(options.algorithm) << " with weight decay " << options.weight_decay;
  }
}

TEST(Optimizer, SgdAgreesWithPyTorchsFusedKernel) {
  const spec::OptimizerOptions kCases[] = {
      {.algorithm = spec::OptimizerAlgorithm::kSgd, .learning_rate = 0.1},
      {.algorithm = spec::OptimizerAlgorithm::kSgd, .learning_rate = 0.1, .weight_decay = 0.05, .momentum = 0.9},
      {.algorithm = spec::OptimizerAlgorithm::kSgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true}};
  for (const spec::OptimizerOptions& options : kCases) {
    at::manual_seed(1);
    TensorSet tensors;
    std::vector<at::Tensor> theirs, momenta, gradients;
    for (const int64_t size : {1, 7, 64, 10007}) {
      const at::Tensor value = tensors.AddParameter("w" + std::to_string(size), at::randn({size}));
      theirs.push_back(value.detach().clone());
      momenta.push_back(at::zeros({size}));
    }
    Optimizer optimizer(options, tensors.parameters());
    for (int t = 1; t <= 5; ++t) {
      gradients.clear();
      for (const at::Tensor& value : theirs) gradients.push_back(at::randn_like(value));
      optimizer.Step(gradients);
      at::_fused_sgd_(theirs, gradients, options.momentum > 0 ? at::TensorList(momenta) : at::TensorList(),
                      options.weight_decay, options.momentum, options.learning_rate,
                      /*dampening=*/0, options.nesterov, /*maximize=*/false, /*is_first_step=*/t == 1);
    }
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_TRUE(at::allclose(tensors.parameters()[i].value, theirs[i], 1e-5, 1e-6))
          << "momentum " << options.momentum << (options.nesterov ? ", nesterov" : "");
    }
    EXPECT_EQ(optimizer.state().size(), 4U + 2U) << "a momentum each, the step count and the learning rate";
  }
}

TEST(Optimizer, AgreesWithPyTorchsFusedKernel) {
  for (const spec::OptimizerAlgorithm algorithm : {spec::OptimizerAlgorithm::kAdam, spec::OptimizerAlgorithm::kAdamW}) {
    at::manual_seed(1);
    TensorSet tensors;
    std::vector<at::Tensor> theirs, m, v, gradients;
    for (const int64_t size : {1, 7, 64, 10007}) {
      const at::Tensor value = tensors.AddParameter("w" + std::to_string(size), at::randn({size}));
      theirs.push_back(value.detach().clone());
      m.push_back(at::zeros({size}));
      v.push_back(at::zeros({size}));
    }
    Optimizer optimizer({.algorithm = algorithm, .learning_rate = 1e-2, .weight_decay = 0.1}, tensors.parameters());
    for (int t = 1; t <= 5; ++t) {
      gradients.clear();
      for (const at::Tensor& value : theirs) gradients.push_back(at::randn_like(value));
      const std::vector<at::Tensor> steps(theirs.size(), at::full({}, static_cast<float>(t)));
      const auto update = [&](auto fused) {
        fused(theirs, gradients, m, v, {}, steps, 1e-2, 0.9, 0.999, 0.1, 1e-8, false, false, std::nullopt,
              std::nullopt);
      };
      using Fused = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&);
      update(algorithm == spec::OptimizerAlgorithm::kAdam ? static_cast<Fused*>(&at::_fused_adam_)
                                                          : static_cast<Fused*>(&at::_fused_adamw_));
      optimizer.Step(gradients);
    }
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_TRUE(at::allclose(optimizer.parameters()[i], theirs[i], 1e-5, 1e-6))
          << spec::kOptimizerNames.Name(algorithm);
    }
  }
}

TEST(Adam, WhatIsRefusedCountsNoStep) {
  at::Tensor step = at::zeros({});
  const at::Tensor rate = at::full({}, 1e-3, at::kDouble), value = at::ones({2}), moment = at::zeros({2});
  EXPECT_THROW(AdamStepAll({value}, {at::ones({3})}, {moment}, {moment.clone()}, step, rate, {0.0}, false), c10::Error);
  EXPECT_EQ(step.item<float>(), 0);
}

TEST(Optimizer, StateCarriesTheWholeUpdate) {
  const auto step = [](Optimizer& optimizer, const at::Tensor& value) { optimizer.Step({2 * value.detach()}); };
  TensorSet first, second;
  const at::Tensor a = first.AddParameter("w", at::full({4}, 2.0)), b = second.AddParameter("w", at::zeros({4}));
  Optimizer one({}, first.parameters()), two({.learning_rate = 0.5}, second.parameters());
  for (int i = 0; i < 3; ++i) step(one, a);
  CopyInto(first.All(), second.All());
  ASSERT_TRUE(CopyByName(one.state(), two.state()).ok());
  step(one, a);
  step(two, b);
  EXPECT_TRUE(at::equal(a, b)) << "learning rate, step count and moments are all in the state";
}

TEST(Optimizer, AGradientThatDoesNotMatchIsAnError) {
  TensorSet tensors;
  tensors.AddParameter("w", at::zeros({2}));
  Optimizer optimizer({}, tensors.parameters());
  EXPECT_THROW(optimizer.Step({}), c10::Error);
  EXPECT_THROW(optimizer.Step({at::Tensor()}), c10::Error);
  EXPECT_THROW(optimizer.Step({at::zeros({3})}), c10::Error);
}

// The fused kernels use one index for the parameter and its gradient, so strides must not matter.
TEST(Optimizer, TheLayoutOfAGradientDoesNotMatter) {
  TensorSet first, second;
  const at::Tensor a = first.AddParameter("w", at::zeros({2, 3})), b = second.AddParameter("w", at::zeros({2, 3}));
  const at::Tensor gradient = at::arange(6, at::kFloat).view({2, 3}) - 2.5;
  Optimizer({}, first.parameters()).Step({gradient});
  Optimizer({}, second.parameters()).Step({gradient.t().contiguous().t()});
  EXPECT_TRUE(at::equal(a, b)) << a << b;
}

TEST(Optimizer, ClipsAsPyTorchDoes) {
  const std::vector<at::Tensor> gradients{at::full({2}, 3.0), at::full({2, 2}, -4.0)};
  const double norm = std::sqrt(2 * 9 + 4 * 16.0);
  for (const double max_norm : {0.5, 5.0, 100.0}) {
    const std::vector<at::Tensor> clipped = ClipGradientNorm(gradients, max_norm);
    const double scale = std::min(1.0, max_norm / (norm + 1e-6));
    EXPECT_NEAR(clipped[0][0].item<double>(), 3 * scale, 1e-6) << max_norm;
    EXPECT_NEAR(clipped[1][1][0].item<double>(), -4 * scale, 1e-6) << max_norm;
  }
  EXPECT_EQ(gradients[0][0].item<double>(), 3) << "the gradients themselves stay";
}

TEST(Optimizer, ClipsBeforeItSteps) {
  TensorSet first, second;
  const at::Tensor a = first.AddParameter("w", at::zeros({3})), b = second.AddParameter("w", at::zeros({3}));
  Optimizer clipping({.max_grad_norm = 1}, first.parameters()), plain({}, second.parameters());
  const at::Tensor gradient = at::full({3}, 10.0);
  for (int i = 0; i < 3; ++i) {
    clipping.Step({gradient * (i + 1)});
    plain.Step(ClipGradientNorm({gradient * (i + 1)}, 1));
  }
  EXPECT_TRUE(at::equal(a, b));
}

TEST(LearningRate, HasTheTypeThatTheDevicesKernelReads) {
  EXPECT_EQ(LearningRateType(c10::kCPU), at::kDouble);
  EXPECT_EQ(LearningRateType(c10::kCUDA), at::kFloat) << "read through a pointer to float";
  EXPECT_EQ(LearningRateType(c10::kMPS), at::kFloat) << "has no float64";
}

TEST(LearningRate, IsReadAsADoubleOnTheCpu) {
  at::Tensor weight = at::zeros({1}, at::kDouble);
  Optimizer optimizer({.learning_rate = 0.1}, {{"weight", weight}});
  optimizer.Step({at::ones({1}, at::kDouble)});
  EXPECT_NEAR(weight.item<double>(), -0.1 / (1 + 1e-8), 1e-14) << "0.1 as a float is 1.5e-9 more";
}

TEST(LearningRate, WarmsUpThenFollowsItsSchedule) {
  const spec::OptimizerOptions cosine{.learning_rate = 2, .schedule = spec::Schedule::kCosine, .warmup_steps = 4};
  const spec::OptimizerOptions linear{.learning_rate = 2, .schedule = spec::Schedule::kLinear, .warmup_steps = 4};
  const spec::OptimizerOptions constant{.learning_rate = 2, .warmup_steps = 4};
  const struct {
    const char* why;
    spec::OptimizerOptions options;
    int64_t step, total;
    double want;
  } kCases[] = {{"first step of warm-up", cosine, 0, 104, 0.5},
                {"last step of warm-up", cosine, 3, 104, 2},
                {"the cosine begins at the top", cosine, 4, 104, 2},
                {"half way", cosine, 54, 104, 1},
                {"the end", cosine, 104, 104, 0},
                {"beyond the end", cosine, 200, 104, 0},
                {"the line begins at the top", linear, 4, 104, 2},
                {"a quarter of the line", linear, 29, 104, 1.5},
                {"the line's end", linear, 104, 104, 0},
                {"constant after warm-up", constant, 54, 104, 2},
                {"no schedule at all", {.learning_rate = 3}, 7, 104, 3},
                {"warm-up longer than the job", cosine, 2, 3, 1.5}};
  for (const auto& c : kCases) EXPECT_NEAR(LearningRateAt(c.options, c.step, 1, c.total), c.want, 1e-12) << c.why;
  const spec::OptimizerOptions steps{
      .learning_rate = 2, .schedule = spec::Schedule::kStep, .warmup_steps = 4, .decay_epochs = 3, .decay_factor = 0.5};
  // An epoch has ten steps.
  for (const auto& [step, want] : {std::pair<int64_t, double>{0, 0.5}, {4, 2}, {29, 2}, {30, 1}, {59, 1}, {60, 0.5}}) {
    EXPECT_NEAR(LearningRateAt(steps, step, 10, 8), want, 1e-12) << step;
  }
}

}  // namespace
}  // namespace permafrost::nn
