// The averages of the weights in their place: what evaluates and is exported where a job keeps some (ema_decay).
// Threads: the device thread.
#pragma once

#include <vector>

#include "nn/optimizer.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

class AveragedWeights {
 public:
  // Borrows both. Allocates the room for the weights that step aside, at once, as the storage of a run does not grow.
  AveragedWeights(nn::TensorSet& tensors, const nn::Optimizer& optimizer);

  bool exist() const { return !aside_.empty(); }
  // The model's tensors as a job exports them: averages in place of the parameters, and its buffers. Without averages,
  // and before the first update: the model's own.
  std::vector<nn::NamedTensor> All() const;

  // While it lives the model's parameters are the averages.
  class Scope {
   public:
    explicit Scope(AveragedWeights& weights);
    Scope(const Scope&) = delete;
    ~Scope();

   private:
    AveragedWeights& weights_;
  };

 private:
  nn::TensorSet& tensors_;
  const nn::Optimizer& optimizer_;
  std::vector<at::Tensor> aside_;
};

}  // namespace permafrost::train
