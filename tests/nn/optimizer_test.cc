#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace permafrost::nn {
namespace {

// Adam and AdamW as the papers write them, on one value.
double ReferenceAfter(int steps, const OptimizerOptions& o, double value, double gradient) {
  double m = 0, v = 0;
  for (int t = 1; t <= steps; ++t) {
    double g = gradient * t;
    if (o.algorithm == OptimizerAlgorithm::kAdam) g += o.weight_decay * value;
    if (o.algorithm == OptimizerAlgorithm::kAdamW) value -= o.learning_rate * o.weight_decay * value;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    value -= o.learning_rate * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
  return value;
}

TEST(Optimizer, FollowsThePapers) {
  const OptimizerOptions kCases[] = {{OptimizerAlgorithm::kAdam, 1e-2, 0},
                                     {OptimizerAlgorithm::kAdam, 1e-2, 0.1},
                                     {OptimizerAlgorithm::kAdamW, 1e-2, 0.1}};
  for (const OptimizerOptions& options : kCases) {
    TensorSet tensors;
    const at::Tensor value = tensors.AddParameter("w", at::full({3}, 1.5, at::kDouble));
    Optimizer optimizer(options, tensors.parameters());
    for (int t = 1; t <= 5; ++t) {
      optimizer.ZeroGrad();
      (value * 0.3 * t).sum().backward();
      optimizer.Step();
    }
    EXPECT_NEAR(value[1].item<double>(), ReferenceAfter(5, options, 1.5, 0.3), 1e-9)
        << kOptimizerNames.Name(options.algorithm) << " with weight decay " << options.weight_decay;
  }
}

TEST(Optimizer, StateCarriesTheWholeUpdate) {
  const auto step = [](Optimizer& optimizer, const at::Tensor& value) {
    optimizer.ZeroGrad();
    (value * value).sum().backward();
    optimizer.Step();
  };
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

TEST(Optimizer, AMissingGradientIsAnError) {
  TensorSet tensors;
  tensors.AddParameter("w", at::zeros({2}));
  Optimizer optimizer({}, tensors.parameters());
  EXPECT_THROW(optimizer.Step(), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
