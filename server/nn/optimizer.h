// Adam, AdamW and SGD: on the CPU by one operator for all parameters (nn/ops/adam.h), elsewhere by PyTorch's fused
// kernels. Step count and learning rate are tensors: nothing in a step is a host number that changes, so a captured
// step stays true. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019; Sutskever et al. 2013 for SGD's momentum, as
// PyTorch's SGD. beta = (0.9, 0.999), eps = 1e-8, as PyTorch's defaults.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/options.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// The learning rate of the step after `step` steps of `epochs` with `steps_per_epoch` each: warm-up, then the schedule.
double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs);

// Gradients scaled down so that their norm over all of them is at most `max_norm`, as torch.nn.utils.clip_grad_norm_
// but without reading the norm back to the host. Source: Pascanu et al. 2013.
std::vector<at::Tensor> ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm);

// The type of the learning rate's tensor: what the fused kernel of that device reads it as. CUDA's reads a float32
// through a pointer and refuses any other; MPS has no float64; the CPU's reads a double.
c10::ScalarType LearningRateType(c10::DeviceType device);

// Threads: the device thread. Borrows the parameters' storage.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters);

  // One update. `gradients`: one for each parameter, in their order and of their shapes; scaled down first where
  // max_grad_norm says so.
  void Step(std::vector<at::Tensor> gradients);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  double learning_rate() const;
  // Takes effect at the next Step, captured or not.
  void SetLearningRate(double learning_rate);
  // Moments ("exp_avg.NAME", "exp_avg_sq.NAME"), or SGD's "momentum.NAME", the step count ("step") and the learning
  // rate
  // ("learning_rate").
  const std::vector<NamedTensor>& state() const { return state_; }

 private:
  void StepSgd(const std::vector<at::Tensor>& gradients);

  OptimizerOptions options_;
  std::vector<at::Tensor> parameters_, exp_avgs_, exp_avg_sqs_, momenta_, steps_;
  at::Tensor step_, learning_rate_;
  std::vector<NamedTensor> state_;
};

}  // namespace permafrost::nn
