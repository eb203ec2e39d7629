#include "train/error_sums.h"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

namespace permafrost::train {

ErrorSums::ErrorSums(c10::Device device, bool pairs) {
  const auto options = at::TensorOptions().device(device).dtype(pairs ? at::kFloat : at::kDouble);
  tensors_ = {{"loss_sum", at::zeros({}, options)}, {"loss_count", at::zeros({}, options)}};
  if (pairs) {
    tensors_.push_back({"loss_sum_rest", at::zeros({}, options)});
    tensors_.push_back({"loss_count_rest", at::zeros({}, options)});
  }
}

void ErrorSums::Reset() {
  for (nn::NamedTensor& t : tensors_) t.value.zero_();
}

void ErrorSums::Add(const nn::LossTerms& terms) {
  Add(0, terms.sum);
  Add(1, terms.count);
}

void ErrorSums::Add(size_t place, const at::Tensor& term) {
  at::Tensor& sum = tensors_[place].value;
  if (tensors_.size() == 2) {
    sum.add_(term);
    return;
  }
  const at::Tensor total = sum + term, added = total - sum;
  tensors_[place + 2].value.add_((sum - (total - added)) + (term - added));
  sum.copy_(total);
}

std::array<double, 2> ErrorSums::Read() const {
  // One tensor is read: each reading waits for the device.
  std::vector<at::Tensor> values;
  for (const nn::NamedTensor& t : tensors_) values.push_back(t.value);
  const at::Tensor host = at::stack(values).to(at::kCPU).to(at::kDouble);
  const double* const v = host.const_data_ptr<double>();
  if (values.size() == 2) return {v[0], v[1]};
  return {v[0] + v[2], v[1] + v[3]};
}

double ErrorSums::Mean() const {
  const auto [sum, count] = Read();
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace permafrost::train
