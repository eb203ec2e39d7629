// Sums of a loss over many batches. They are kept on the device: only reading them waits for it.
// Threads: the device thread.
#pragma once

#include <c10/core/Device.h>

#include <array>

#include "nn/loss.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

class ErrorSums {
 public:
  // float64, or pairs of float32 where the device has no float64 (MPS): what a sum loses is summed beside it, so that
  // an epoch of 2^24 labels and more is summed as float64 would. Source: Knuth, TAOCP 2, 4.2.2, theorem B.
  explicit ErrorSums(c10::Device device) : ErrorSums(device, device.is_mps()) {}
  ErrorSums(c10::Device device, bool pairs);

  void Reset();
  void Add(const nn::LossTerms& terms);
  // NaN where no label was present. Waits for the device once.
  double Mean() const;
  // The number of values that were added. Waits for the device.
  double Count() const { return Read()[1]; }
  // The tensors themselves, for checkpoints: "loss_sum", "loss_count"; of pairs also "loss_sum_rest",
  // "loss_count_rest".
  const std::vector<nn::NamedTensor>& tensors() const { return tensors_; }

 private:
  std::array<double, 2> Read() const;
  void Add(size_t place, const at::Tensor& term);

  std::vector<nn::NamedTensor> tensors_;
};

}  // namespace permafrost::train
