#include "train/error_sums.h"

#include <ATen/ATen.h>

#include <limits>

namespace permafrost::train {

ErrorSums::ErrorSums(c10::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(device.is_mps() ? at::kFloat : at::kDouble);
  tensors_ = {{"loss_sum", at::zeros({}, options)}, {"loss_count", at::zeros({}, options)}};
}

void ErrorSums::Reset() {
  for (nn::NamedTensor& t : tensors_) t.value.zero_();
}

void ErrorSums::Add(const nn::LossTerms& terms) {
  tensors_[0].value.add_(terms.sum);
  tensors_[1].value.add_(terms.count);
}

double ErrorSums::Mean() const {
  const double count = tensors_[1].value.item().toDouble();
  return count > 0 ? tensors_[0].value.item().toDouble() / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace permafrost::train
