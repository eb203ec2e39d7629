#include "train/tasks/padded_norm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>
#include <vector>

#include "collective/group.h"

namespace permafrost::train {
namespace {

using at::Tensor;

// Places of the arguments.
enum Argument : uint8_t { kX, kWeight, kBias, kRunningMean, kRunningVar, kTrains, kMomentum, kEps, kCudnn, kArguments };

const c10::IValue& Get(const torch::jit::Stack& stack, Argument argument) {
  return torch::jit::peek(stack, argument, kArguments);
}

Tensor TensorOf(const torch::jit::Stack& stack, Argument argument) {
  const c10::IValue& value = Get(stack, argument);
  return value.isTensor() ? value.toTensor() : Tensor();
}

// Moves a running statistic towards the batch's value, if `moves`.
void Follow(const Tensor& running, const Tensor& value, double momentum, const Tensor& moves) {
  running.copy_(at::where(moves, running * (1 - momentum) + value * momentum, running));
}

// Returns the sum over all ranks, added in float64.
Tensor OverRanks(const Tensor& sum) { return collective::AllReduceSum(sum.to(at::kDouble)).to(sum.scalar_type()); }

}  // namespace

std::vector<int64_t> ShapeOfNorm(const torch::jit::Stack& stack) { return TensorOf(stack, kX).sizes().vec(); }

bool NormTrains(const torch::jit::Stack& stack) { return Get(stack, kTrains).toBool(); }

void NormalizeReal(const Tensor& real, torch::jit::Stack& stack) {
  const Tensor input = TensorOf(stack, kX), weight = TensorOf(stack, kWeight), bias = TensorOf(stack, kBias);
  const Tensor running_mean = TensorOf(stack, kRunningMean), running_var = TensorOf(stack, kRunningVar);
  const double momentum = Get(stack, kMomentum).toDouble(), eps = Get(stack, kEps).toDouble();
  const bool half = at::isReducedFloatingType(input.scalar_type());
  const Tensor x = half ? input.to(at::kFloat) : input;
  // All dimensions but that of the channels.
  std::vector<int64_t> others{0};
  for (int64_t d = 2; d < x.dim(); ++d) others.push_back(d);
  std::vector<int64_t> of_rows(static_cast<size_t>(x.dim()), 1), of_channels = of_rows;
  of_rows[0] = -1;
  of_channels[1] = x.size(1);
  const Tensor is_real = real.view(of_rows), zero = at::zeros({}, x.options());
  const auto by_channel = [&](const Tensor& value) { return value.view(of_channels); };
  Tensor sum = at::where(is_real, x, zero).sum(others), values = real.sum().to(x.scalar_type());
  for (int64_t d = 2; d < x.dim(); ++d) values = values * x.size(d);
  if (collective::IsShared()) {
    const Tensor all = OverRanks(at::cat({sum, values.reshape({1})}));
    sum = all.narrow(0, 0, x.size(1));
    values = all.select(0, x.size(1)).detach();
  }
  const Tensor count = values.clamp_min(1), enough = values.ge(2);
  Tensor mean = sum / count;
  Tensor squares = at::where(is_real, x - by_channel(mean), zero).square().sum(others);
  if (collective::IsShared()) squares = OverRanks(squares);
  Tensor var = squares / count;
  if (running_mean.defined()) {
    const Tensor batch_mean = mean.detach(), unbiased = var.detach() * (count / (count - 1).clamp_min(1));
    mean = at::where(enough, mean, running_mean);
    var = at::where(enough, var, running_var);
    const c10::NoGradGuard no_grad;
    Follow(running_mean, batch_mean, momentum, enough);
    Follow(running_var, unbiased, momentum, enough);
  }
  Tensor y = at::where(is_real, x - by_channel(mean), zero) * by_channel((var + eps).rsqrt());
  if (weight.defined()) y = y * by_channel(weight);
  if (bias.defined()) y = y + by_channel(bias);
  torch::jit::drop(stack, kArguments);
  stack.emplace_back(half ? y.to(input.scalar_type()) : std::move(y));
}

}  // namespace permafrost::train
