// A linear map of rows with bias and ReLU as one operator with its gradient: permafrost::row_linear, for the CPU.
// Threads: any. Bits do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace permafrost::nn {

// Returns whether a device runs permafrost::row_linear: the CPU does.
bool RunsRowLinear(c10::Device device);

// y = x * weight^T + bias, then ReLU if `relu`; NaN stays. x: [..., C] float32 or float64; weight: [D, C];
// bias: [D], or undefined. Returns [..., D]. Differentiable once. Factors are rounded to bfloat16 where
// RoundsFactors (lowering.h). Errors: c10::Error for shapes or types that do not fit.
at::Tensor RowLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool relu);

}  // namespace permafrost::nn
