// Linear maps of rows, as operators with their gradients: a single map with bias and ReLU, and an MLP of two maps.
// Threads: any. Bits do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace permafrost::nn {

// Returns whether a device runs permafrost::row_linear. Only the CPU does.
bool RunsRowLinear(c10::Device device);

// y = x * weight^T + bias, then ReLU if `relu` is set; NaN stays NaN. x: [..., C] float32 or float64; weight: [D, C];
// bias: [D], or undefined. Returns [..., D]. Differentiable once. Factors are rounded to bfloat16 if RoundsFactors
// (lowering.h). permafrost::row_linear. Errors: c10::Error for shapes or types that do not fit.
at::Tensor RowLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool relu);

// Returns relu(x * w1^T + b1) * w2^T + b2, [N, D]. x: [N, C] float32 or float64; w1: [H, C]; b1: [H]; w2: [D, H]; b2:
// [D]. Differentiable in all arguments. Runs permafrost::mlp if HasColumnKernels (lowering.h), else PyTorch's
// operators.
at::Tensor Mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1, const at::Tensor& w2,
               const at::Tensor& b2);

}  // namespace permafrost::nn
