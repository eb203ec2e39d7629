// Adam and AdamW, and SGD, over all of a model's parameters as one operator each: permafrost::adam_, permafrost::sgd_.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace permafrost::nn {

// One update, in one parallel region for all parameters. CPU; float32 or float64, contiguous, all of one type.
// gradients, exp_avgs, exp_avg_sqs: one for each parameter, of its shape; step: [] float32, steps done, one more after
// this; learning_rate: [] float64; weight_decays: one for each parameter. decoupled: AdamW. beta = (0.9, 0.999), eps =
// 1e-8. applies: undefined, or [] float32: where it is 0 nothing is updated, and no step counted.
void AdamStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                 const std::vector<at::Tensor>& exp_avgs, const std::vector<at::Tensor>& exp_avg_sqs, at::Tensor& step,
                 const at::Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const at::Tensor& applies = {});

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};
// As above, for g = gradient + weight_decay * value: m = momentum * m + g, value -= learning_rate * m, or with nesterov
// learning_rate * (g + momentum * m). momenta: one for each parameter, 0 before the first step.
void SgdStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& momenta, at::Tensor& step, const at::Tensor& learning_rate,
                at::ArrayRef<double> weight_decays, const SgdOptions& options, const at::Tensor& applies = {});

}  // namespace permafrost::nn
