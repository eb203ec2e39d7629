#include "train/averaged_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/fault.h"

namespace permafrost::train {

AveragedWeights::AveragedWeights(nn::TensorSet& tensors, const nn::Optimizer& optimizer)
    : tensors_(tensors), optimizer_(optimizer) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& average : optimizer.averages()) aside_.push_back(at::empty_like(average));
}

std::vector<nn::NamedTensor> AveragedWeights::All() const {
  std::vector<nn::NamedTensor> all = tensors_.All();
  if (!optimizer_.has_averages()) return all;
  for (size_t i = 0; i < aside_.size(); ++i) all[i].value = optimizer_.averages()[i];
  return all;
}

AveragedWeights::Scope::Scope(AveragedWeights& weights) : weights_(weights) {
  const at::NoGradGuard no_grad;
  const auto& parameters = weights.optimizer_.parameters();
  const auto& averages = weights.optimizer_.averages();
  for (size_t i = 0; i < weights.aside_.size(); ++i) {
    weights.aside_[i].copy_(parameters[i]);
    if (weights.optimizer_.has_averages()) parameters[i].copy_(averages[i]);
  }
}

AveragedWeights::Scope::~Scope() {
  device::UnlessFatal([this] {
    const at::NoGradGuard no_grad;
    const auto& parameters = weights_.optimizer_.parameters();
    for (size_t i = 0; i < weights_.aside_.size(); ++i) parameters[i].copy_(weights_.aside_[i]);
  });
}

}  // namespace permafrost::train
