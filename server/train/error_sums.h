// Sums of a loss over many batches. They are kept on the device: only reading them waits for it.
// Threads: the device thread.
#pragma once

#include <c10/core/Device.h>

#include "nn/loss.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

class ErrorSums {
 public:
  // float64, or float32 where the device has no float64 (MPS).
  explicit ErrorSums(c10::Device device);

  void Reset();
  void Add(const nn::LossTerms& terms);
  // NaN where no label was present.
  double Mean() const;
  // The tensors themselves, for checkpoints: "loss_sum", "loss_count".
  const std::vector<nn::NamedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<nn::NamedTensor> tensors_;
};

}  // namespace permafrost::train
