// Adam and AdamW by PyTorch's fused kernels, with the step count and the learning rate as tensors: nothing in a step is
// a host number that changes, so a captured step stays true. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.
// beta = (0.9, 0.999), eps = 1e-8, as PyTorch's defaults.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/config.h"
#include "nn/module.h"

namespace permafrost::nn {

// Threads: the device thread. Borrows the parameters' storage.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters);

  // Forgets the gradients, so that backward hands over fresh ones instead of adding.
  void ZeroGrad();
  // One update from the parameters' gradients. Every parameter must have one.
  void Step();

  double learning_rate() const;
  // Moments ("exp_avg.NAME", "exp_avg_sq.NAME"), the step count ("step") and the learning rate ("learning_rate").
  const std::vector<NamedTensor>& state() const { return state_; }

 private:
  OptimizerOptions options_;
  std::vector<at::Tensor> parameters_, exp_avgs_, exp_avg_sqs_, steps_;
  at::Tensor step_, learning_rate_;
  std::vector<NamedTensor> state_;
};

}  // namespace permafrost::nn
