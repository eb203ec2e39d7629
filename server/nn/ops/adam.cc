#include "nn/ops/adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "nn/kernels/adam.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Values that are updated at once, and the blocks from which on several threads share them. At half of these, 35 us of
// work, two threads were as fast as one: `bench/run parallel --filter updates`.
constexpr int64_t kAdamBlock = 4096, kAdamGrain = 32;

struct Block {
  size_t tensor;
  int64_t begin;
};

void AdamCpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
             Tensor& step, const Tensor& learning_rate, double weight_decay, bool decoupled) {
  TORCH_CHECK(!parameters.empty() && gradients.size() == parameters.size() && exp_avgs.size() == parameters.size() &&
                  exp_avg_sqs.size() == parameters.size(),
              "adam_: ", parameters.size(), " parameters, ", gradients.size(), " gradients, ", exp_avgs.size(), " and ",
              exp_avg_sqs.size(), " moments");
  std::vector<Block> blocks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const Tensor* t : {&gradients[i], &exp_avgs[i], &exp_avg_sqs[i]}) {
      TORCH_CHECK(t->sizes() == parameters[i].sizes() && t->is_contiguous() && parameters[i].is_contiguous(),
                  "adam_: a gradient or moment of ", t->sizes(), " for a parameter of ", parameters[i].sizes());
    }
    for (int64_t begin = 0; begin < parameters[i].numel(); begin += kAdamBlock) blocks.push_back({i, begin});
  }
  // Counted once nothing can be wrong any more.
  const float done = ++*step.mutable_data_ptr<float>();
  AdamUpdate update{
      .learning_rate = *learning_rate.const_data_ptr<double>(), .weight_decay = weight_decay, .decoupled = decoupled};
  update.correction1 = 1 - std::pow(update.beta1, static_cast<double>(done));
  update.correction2 = 1 - std::pow(update.beta2, static_cast<double>(done));
  AT_DISPATCH_FLOATING_TYPES(parameters[0].scalar_type(), "adam_", [&] {
    at::parallel_for(0, std::ssize(blocks), kAdamGrain, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const auto [i, begin] = blocks[static_cast<size_t>(b)];
        AdamStep<scalar_t>(
            update, std::min(kAdamBlock, parameters[i].numel() - begin),
            gradients[i].const_data_ptr<scalar_t>() + begin, parameters[i].mutable_data_ptr<scalar_t>() + begin,
            exp_avgs[i].mutable_data_ptr<scalar_t>() + begin, exp_avg_sqs[i].mutable_data_ptr<scalar_t>() + begin);
      }
    });
  });
}

constexpr Operator<AdamCpu> kAdam{
    "adam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!) step, Tensor learning_rate, float weight_decay, bool decoupled) -> ()"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) { kAdam.Register(library); }

void AdamStepAll(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                 const std::vector<Tensor>& exp_avgs, const std::vector<Tensor>& exp_avg_sqs, Tensor& step,
                 const Tensor& learning_rate, double weight_decay, bool decoupled) {
  kAdam(parameters, gradients, exp_avgs, exp_avg_sqs, step, learning_rate, weight_decay, decoupled);
}

}  // namespace permafrost::nn
