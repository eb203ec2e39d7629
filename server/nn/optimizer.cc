#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "nn/ops/parameter_updates.h"

namespace permafrost::nn {
namespace {
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
constexpr double kClipEps = 1e-6;  // as PyTorch's

bool IsDecayed(spec::WeightDecayOf decayed, const NamedTensor& parameter) {
  switch (decayed) {
    case spec::WeightDecayOf::kAll:
      return true;
    case spec::WeightDecayOf::kMatrices:
      return parameter.value.dim() >= 2;
    case spec::WeightDecayOf::kFirstLayer:
      return parameter.name.starts_with("convs.0.");
  }
  return true;
}

}  // namespace

Optimizer::Optimizer(const spec::OptimizerOptions& options, const std::vector<NamedTensor>& parameters)
    : options_(options) {
  const auto device = parameters.at(0).value.device();
  const auto number = at::TensorOptions().device(device).dtype(at::kFloat);
  step_ = at::zeros({}, number);
  learning_rate_ =
      at::full({}, options.learning_rate, at::TensorOptions().device(device).dtype(LearningRateType(device.type())));
  for (const NamedTensor& p : parameters) {
    parameters_.push_back(p.value);
    weight_decays_.push_back(IsDecayed(options.weight_decay_of, p) ? options.weight_decay : 0);
    const auto add = [&](const char* kind, std::vector<at::Tensor>& to) {
      to.push_back(at::zeros_like(p.value, at::TensorOptions().requires_grad(false)));
      state_.push_back({kind + p.name, to.back()});
    };
    if (options.algorithm == spec::OptimizerAlgorithm::kSgd) {
      add("momentum.", momenta_);
    } else {
      add("exp_avg.", exp_avgs_);
      add("exp_avg_sq.", exp_avg_sqs_);
    }
    if (options.ema_decay > 0) add("average.", averages_);
    if (accumulates()) add("gradient_sum.", gradient_sums_);
  }
  state_.push_back({"step", step_});
  state_.push_back({"learning_rate", learning_rate_});
  if (!accumulates()) return;
  group_batches_ = at::zeros({}, number);
  ends_group_ = at::ones({}, number);
  state_.push_back({"group_batches", group_batches_});
  state_.push_back({"ends_group", ends_group_});
}

c10::ScalarType LearningRateType(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? c10::ScalarType::Double : c10::ScalarType::Float;
}

double LearningRateAt(const spec::OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs) {
  const int64_t warmup = options.warmup_steps, total_steps = steps_per_epoch * epochs;
  if (step < warmup) return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double done =
      total_steps <= warmup
          ? 0
          : std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  switch (options.schedule) {
    case spec::Schedule::kConstant:
    case spec::Schedule::kPlateau:
      break;
    case spec::Schedule::kCosine:
      return options.learning_rate * (1 + std::cos(std::numbers::pi * done)) / 2;
    case spec::Schedule::kLinear:
      return options.learning_rate * (1 - done);
    case spec::Schedule::kStep: {
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

void Optimizer::CheckGradients(std::vector<at::Tensor>& gradients) const {
  TORCH_CHECK(gradients.size() == parameters_.size(), "Optimizer::Step: ", gradients.size(), " gradients for ",
              parameters_.size(), " parameters");
  for (size_t i = 0; i < gradients.size(); ++i) {
    TORCH_CHECK(gradients[i].defined() && gradients[i].sizes() == parameters_[i].sizes(),
                "Optimizer::Step: a parameter of shape ", parameters_[i].sizes(), " has no gradient of its shape");
    // The kernels walk both by one index.
    if (gradients[i].strides() != parameters_[i].strides()) gradients[i] = gradients[i].contiguous();
  }
}

void Optimizer::Step(std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(options_.algorithm != spec::OptimizerAlgorithm::kSparseAdam,
              "Optimizer::Step: sparse_adam takes gradients of rows");
  CheckGradients(gradients);
  if (accumulates()) gradients = AddToGroup(gradients);
  Apply(std::move(gradients));
}

void Optimizer::Apply(std::vector<at::Tensor> gradients) {
  if (options_.max_grad_norm > 0) gradients = ClipGradientNorm(gradients, options_.max_grad_norm);
  Update(gradients);
  if (options_.ema_decay > 0) Average();
  if (accumulates()) EndGroup();
}

void Optimizer::SkipBatch() {
  if (!accumulates() || ends_group_.item().toDouble() == 0 || group_batches_.item().toDouble() == 0) return;
  const at::NoGradGuard no_grad;
  Apply(MeanOfGroup());
}

void Optimizer::DropGroup() {
  const at::NoGradGuard no_grad;
  if (accumulates()) EndGroup();
}

void Optimizer::StepRows(const RowGradient& gradient) {
  TORCH_CHECK(parameters_.size() == 1, "Optimizer::StepRows: one table is expected, not ", parameters_.size(),
              " parameters");
  const at::NoGradGuard no_grad;
  const at::Tensor& table = parameters_.front();
  if (options_.algorithm == spec::OptimizerAlgorithm::kSparseAdam) {
    SparseAdamStep(table, exp_avgs_.front(), exp_avg_sqs_.front(), step_, learning_rate_, gradient);
  } else {
    Step({DenseGradient(gradient, table.size(0))});
  }
}

std::vector<at::Tensor> Optimizer::AddToGroup(const std::vector<at::Tensor>& gradients) {
  at::_foreach_add_(gradient_sums_, gradients);
  group_batches_.add_(1);
  return MeanOfGroup();
}

std::vector<at::Tensor> Optimizer::MeanOfGroup() const {
  return at::_foreach_mul(gradient_sums_, group_batches_.reciprocal());
}

// Nothing in a step is a choice of the host: what begins a group is what the one before leaves times 0.
void Optimizer::EndGroup() {
  const at::Tensor goes_on = ends_group_.neg().add(1);
  at::_foreach_mul_(gradient_sums_, goes_on);
  group_batches_.mul_(goes_on);
}

void Optimizer::Update(const std::vector<at::Tensor>& gradients) {
  if (!step_.is_cpu()) {
    UpdateElsewhere(gradients);
  } else if (options_.algorithm == spec::OptimizerAlgorithm::kSgd) {
    SgdStepAll(parameters_, gradients, momenta_, step_, learning_rate_, weight_decays_,
               {.momentum = options_.momentum, .nesterov = options_.nesterov}, ends_group_);
  } else {
    AdamStepAll(parameters_, gradients, exp_avgs_, exp_avg_sqs_, step_, learning_rate_, weight_decays_,
                options_.algorithm == spec::OptimizerAlgorithm::kAdamW, ends_group_);
  }
}

void Optimizer::UpdateElsewhere(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> changed, before;
  if (accumulates()) {
    for (const auto* part : {&parameters_, &exp_avgs_, &exp_avg_sqs_, &momenta_}) {
      changed.insert(changed.end(), part->begin(), part->end());
    }
    changed.push_back(step_);
    for (const at::Tensor& tensor : changed) before.push_back(tensor.clone());
  }
  step_.add_(1);
  // The kernels take one weight decay for all.
  std::vector<size_t> decayed, others;
  for (size_t i = 0; i < parameters_.size(); ++i) (weight_decays_[i] > 0 ? decayed : others).push_back(i);
  if (!decayed.empty()) UpdateByTorch(gradients, decayed, options_.weight_decay);
  if (!others.empty()) UpdateByTorch(gradients, others, 0);
  if (!accumulates()) return;
  // If the group goes on, the whole update is taken back.
  const at::Tensor goes_on = ends_group_.neg().add(1);
  for (size_t i = 0; i < changed.size(); ++i) changed[i].lerp_(before[i], goes_on);
}

void Optimizer::UpdateByTorch(const std::vector<at::Tensor>& gradients, const std::vector<size_t>& places,
                              double weight_decay) {
  const auto pick = [&places](const std::vector<at::Tensor>& from) {
    std::vector<at::Tensor> picked;
    picked.reserve(places.size());
    for (const size_t place : places) picked.push_back(from[place]);
    return picked;
  };
  const std::vector<at::Tensor> values = pick(parameters_), grads = pick(gradients);
  if (options_.algorithm == spec::OptimizerAlgorithm::kSgd) {
    const std::vector<at::Tensor> momenta = options_.momentum > 0 ? pick(momenta_) : std::vector<at::Tensor>();
    // Momenta begin at 0, which is what a first step leaves of them: it needs no other rule.
    at::_fused_sgd_(values, grads, momenta, weight_decay, options_.momentum, learning_rate_,
                    /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    return;
  }
  // Both kernels are overloaded, and have one signature.
  using Kernel = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      const at::Tensor&, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&);
  Kernel* const update = options_.algorithm == spec::OptimizerAlgorithm::kAdamW
                             ? static_cast<Kernel*>(&at::_fused_adamw_)
                             : static_cast<Kernel*>(&at::_fused_adam_);
  // The kernels take a step count for each parameter and only read it: one tensor serves all.
  const std::vector<at::Tensor> steps(places.size(), step_);
  update(values, grads, pick(exp_avgs_), pick(exp_avg_sqs_), {}, steps, learning_rate_, kBeta1, kBeta2, weight_decay,
         kEps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

void Optimizer::Average() {
  const auto as_number = [this](const at::Tensor& condition) { return condition.to(step_.scalar_type()); };
  // 1 of the first update, whose weights the averages are then.
  at::Tensor part = as_number(step_.gt(1.5)) * (1 - options_.ema_decay) + as_number(step_.lt(1.5));
  if (accumulates()) part = part * ends_group_;
  part = part.to(averages_.front().scalar_type());
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].lerp_(parameters_[i], part);
}

void Optimizer::SetEndsGroup(bool ends) {
  if (accumulates()) ends_group_.fill_(ends ? 1 : 0);
}

void Optimizer::MakeUpdatesProportional() {
  // A gradient of 1e-3 counts as one of the usual size: an update is then learning rate * gradient / 1e-3, up to the
  // correction of the first steps.
  constexpr double kUsualSquare = 1e-6;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& square : exp_avg_sqs_) square.fill_(kUsualSquare);
}

void Optimizer::SetLearningRate(double learning_rate) { learning_rate_.fill_(learning_rate); }

double Optimizer::learning_rate() const { return learning_rate_.item().toDouble(); }

}  // namespace permafrost::nn
