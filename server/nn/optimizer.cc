#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/ops/adam.h"

namespace permafrost::nn {
namespace {
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
constexpr double kClipEps = 1e-6;  // as PyTorch's
}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters) : options_(options) {
  const auto device = parameters.at(0).value.device();
  step_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
  learning_rate_ =
      at::full({}, options.learning_rate, at::TensorOptions().device(device).dtype(LearningRateType(device.type())));
  for (const NamedTensor& p : parameters) {
    parameters_.push_back(p.value);
    const auto like = [&] { return at::zeros_like(p.value, at::TensorOptions().requires_grad(false)); };
    if (options.algorithm == OptimizerAlgorithm::kSgd) {
      momenta_.push_back(like());
      state_.push_back({"momentum." + p.name, momenta_.back()});
      continue;
    }
    exp_avgs_.push_back(like());
    exp_avg_sqs_.push_back(like());
    // The fused kernels take a step count for each parameter and only read it: one tensor serves all.
    steps_.push_back(step_);
    state_.push_back({"exp_avg." + p.name, exp_avgs_.back()});
    state_.push_back({"exp_avg_sq." + p.name, exp_avg_sqs_.back()});
  }
  state_.push_back({"step", step_});
  state_.push_back({"learning_rate", learning_rate_});
}

c10::ScalarType LearningRateType(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? c10::ScalarType::Double : c10::ScalarType::Float;
}

double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs) {
  const int64_t warmup = options.warmup_steps, total_steps = steps_per_epoch * epochs;
  if (step < warmup) return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double done =
      total_steps <= warmup
          ? 0
          : std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  switch (options.schedule) {
    case Schedule::kConstant:
      break;
    case Schedule::kCosine:
      return options.learning_rate * (1 + std::cos(std::numbers::pi * done)) / 2;
    case Schedule::kLinear:
      return options.learning_rate * (1 - done);
    case Schedule::kStep: {
      const int64_t decays = step / std::max<int64_t>(1, steps_per_epoch) / std::max<int64_t>(1, options.decay_epochs);
      return options.learning_rate * std::pow(options.decay_factor, static_cast<double>(decays));
    }
  }
  return options.learning_rate;
}

std::vector<at::Tensor> ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  return at::_foreach_mul(gradients, (norm + kClipEps).reciprocal().mul(max_norm).clamp_max(1));
}

void Optimizer::Step(std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(gradients.size() == parameters_.size(), "Optimizer::Step: ", gradients.size(), " gradients for ",
              parameters_.size(), " parameters");
  for (size_t i = 0; i < gradients.size(); ++i) {
    TORCH_CHECK(gradients[i].defined() && gradients[i].sizes() == parameters_[i].sizes(),
                "Optimizer::Step: a parameter of shape ", parameters_[i].sizes(), " has no gradient of its shape");
    // The kernels walk both by one index.
    if (gradients[i].strides() != parameters_[i].strides()) gradients[i] = gradients[i].contiguous();
  }
  if (options_.max_grad_norm > 0) gradients = ClipGradientNorm(gradients, options_.max_grad_norm);
  if (options_.algorithm == OptimizerAlgorithm::kSgd) {
    StepSgd(gradients);
    return;
  }
  const bool decoupled = options_.algorithm == OptimizerAlgorithm::kAdamW;
  if (step_.is_cpu()) {
    AdamStepAll(parameters_, gradients, exp_avgs_, exp_avg_sqs_, step_, learning_rate_, options_.weight_decay,
                decoupled);
    return;
  }
  step_.add_(1);
  // Both are overloaded and of one signature.
  using Update = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      const at::Tensor&, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&);
  Update* const update = decoupled ? static_cast<Update*>(&at::_fused_adamw_) : static_cast<Update*>(&at::_fused_adam_);
  update(parameters_, gradients, exp_avgs_, exp_avg_sqs_, {}, steps_, learning_rate_, kBeta1, kBeta2,
         options_.weight_decay, kEps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

void Optimizer::StepSgd(const std::vector<at::Tensor>& gradients) {
  if (step_.is_cpu()) {
    SgdStepAll(parameters_, gradients, momenta_, step_, learning_rate_,
               {.weight_decay = options_.weight_decay, .momentum = options_.momentum, .nesterov = options_.nesterov});
    return;
  }
  step_.add_(1);
  // Momenta begin at 0, which is what a first step leaves of them: it needs no other rule.
  at::_fused_sgd_(parameters_, gradients, options_.momentum > 0 ? at::TensorList(momenta_) : at::TensorList(),
                  options_.weight_decay, options_.momentum, learning_rate_,
                  /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

void Optimizer::SetLearningRate(double learning_rate) { learning_rate_.fill_(learning_rate); }

double Optimizer::learning_rate() const { return learning_rate_.item().toDouble(); }

}  // namespace permafrost::nn
