// The operators of a program that the server runs in its own way, in place of PyTorch's: those that draw random
// numbers, and the batch norms of padded batches. Threads: safe anywhere, for different tensors; Draw on the device
// thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace permafrost::train {

// Random operators draw with our own generator. Every number is a pure function of (seed, step, place of the operator
// among those that draw, row, column), so captures, resumes and equal runs draw the same. Rows are the first dimension.
// The distributions are PyTorch's; the numbers are not.

// Returns whether Draw knows the operator.
bool CanDraw(const program::Node& node);

// Runs such a node in place of PyTorch's operator: takes the arguments off the stack, and puts the results there. step:
// [1] int64. Gradients pass as PyTorch's do.
void Draw(const program::Node& node, uint64_t seed, int64_t place, const at::Tensor& step, torch::jit::Stack& stack);

// A batch norm of a padded batch runs over its real rows, in place of aten::batch_norm.

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
