// Checks gradients against finite differences, without a reference's derivative.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "nn/leaf.h"

namespace permafrost::nn {

// Checks the gradients of `value`, which returns a scalar of float64 tensors. For each input by itself, a step along
// its gradient must change the scalar by as much as the gradient predicts. The two may differ by the relative
// `tolerance` plus `noise`, the error from rounding the scalar itself.
inline void ExpectGradientsOfDifferences(const std::vector<at::Tensor>& inputs,
                                         const std::function<at::Tensor(const std::vector<at::Tensor>&)>& value,
                                         double tolerance, double noise, const std::string& why) {
  std::vector<at::Tensor> leaves;
  leaves.reserve(inputs.size());
  for (const at::Tensor& input : inputs) leaves.push_back(Leaf(input));
  value(leaves).backward();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor grad = leaves[i].grad(), direction = grad / (grad.norm() + 1e-30);
    const auto moved = [&](double by) {
      std::vector<at::Tensor> at;
      for (size_t k = 0; k < leaves.size(); ++k) {
        at.push_back(k == i ? leaves[k].detach() + direction * by : leaves[k].detach());
      }
      return value(at).item<double>();
    };
    constexpr double kStep = 1e-6;
    const double expected = (grad * direction).sum().item<double>();
    EXPECT_NEAR((moved(kStep) - moved(-kStep)) / (2 * kStep), expected, tolerance * std::abs(expected) + noise)
        << why << ": input " << i;
  }
}

}  // namespace permafrost::nn
