// Batch norm of a program over the real rows of a padded batch, in place of aten::batch_norm.
// Threads: safe anywhere, for different tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace permafrost::train {

// Returns the shape of the norm's input. The stack holds the arguments of aten::batch_norm, which stay there.
std::vector<int64_t> ShapeOfNorm(const torch::jit::Stack& stack);
// Returns whether the norm uses the batch's statistics, and not running ones. The stack stays as it is.
bool NormTrains(const torch::jit::Stack& stack);

// Takes the arguments off the stack and leaves the output there. The mean and the (biased) variance are those of the
// rows that `real`, bool [rows], says are real, on all ranks where a step is shared; running statistics are updated as
// PyTorch does. Padding rows get the bias (0 without one) and no gradient. With fewer than two values of a channel,
// running statistics, if there are any, are used and not updated.
// x: [rows, channels, ...].
void NormalizeReal(const at::Tensor& real, torch::jit::Stack& stack);

}  // namespace permafrost::train
