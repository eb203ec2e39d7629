// Runs a program's random operators with our own generator. Every number is a pure function of (seed, step, place of
// the operator among those that draw, row, column), so captures, resumes and equal runs draw the same. Rows are the
// first dimension. The distributions are PyTorch's; the numbers are not. Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>

#include "program/program.h"

namespace permafrost::train {

// Returns whether Draw knows the operator.
bool CanDraw(const program::Node& node);

// Runs such a node in place of PyTorch's operator: takes the arguments off the stack, and puts the results there. step:
// [1] int64. Gradients pass as PyTorch's do.
void Draw(const program::Node& node, uint64_t seed, int64_t place, const at::Tensor& step, torch::jit::Stack& stack);

}  // namespace permafrost::train
