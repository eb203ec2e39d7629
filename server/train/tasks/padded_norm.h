// Batch norm of a program over the real rows of a padded batch, in place of aten::batch_norm.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace permafrost::train {

// The arguments of aten::batch_norm lie on the stack.
std::vector<int64_t> ShapeOfNorm(const torch::jit::Stack& stack);
// Returns whether it normalizes by the batch, and not by running statistics.
bool NormTrains(const torch::jit::Stack& stack);

// Takes the arguments off the stack and leaves the output there. The mean and the (biased) variance are those of the
// rows that `real`, bool [rows], says are real; running statistics are updated as PyTorch does. Padding rows become the
// bias, and get no gradient. With fewer than two real rows, running statistics are used where there are any, and stay.
// x: [rows, channels].
void NormalizeReal(const at::Tensor& real, torch::jit::Stack& stack);

}  // namespace permafrost::train
