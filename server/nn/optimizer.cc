#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace permafrost::nn {
namespace {
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
}

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters) : options_(options) {
  const auto device = parameters.at(0).value.device();
  step_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
  learning_rate_ = at::full({}, options.learning_rate, at::TensorOptions().device(device).dtype(at::kDouble));
  if (device.is_mps()) learning_rate_ = learning_rate_.to(at::kFloat);  // MPS has no float64
  for (const NamedTensor& p : parameters) {
    parameters_.push_back(p.value);
    exp_avgs_.push_back(at::zeros_like(p.value, at::TensorOptions().requires_grad(false)));
    exp_avg_sqs_.push_back(at::zeros_like(p.value, at::TensorOptions().requires_grad(false)));
    // The fused kernels take a step count for each parameter and only read it: one tensor serves all.
    steps_.push_back(step_);
    state_.push_back({"exp_avg." + p.name, exp_avgs_.back()});
    state_.push_back({"exp_avg_sq." + p.name, exp_avg_sqs_.back()});
  }
  state_.push_back({"step", step_});
  state_.push_back({"learning_rate", learning_rate_});
}

void Optimizer::ZeroGrad() {
  for (at::Tensor& p : parameters_) p.mutable_grad() = at::Tensor();
}

void Optimizer::Step() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  grads.reserve(parameters_.size());
  for (const at::Tensor& p : parameters_) {
    TORCH_CHECK(p.grad().defined(), "Optimizer::Step: a parameter of shape ", p.sizes(), " has no gradient");
    grads.push_back(p.grad());
  }
  step_.add_(1);
  // Both are overloaded and of one signature.
  using Update = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      const at::Tensor&, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&);
  Update* const update = options_.algorithm == OptimizerAlgorithm::kAdam ? static_cast<Update*>(&at::_fused_adam_)
                                                                         : static_cast<Update*>(&at::_fused_adamw_);
  update(parameters_, grads, exp_avgs_, exp_avg_sqs_, {}, steps_, learning_rate_, kBeta1, kBeta2, options_.weight_decay,
         kEps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

double Optimizer::learning_rate() const { return learning_rate_.item<double>(); }

}  // namespace permafrost::nn
