// Linear, ReLU, linear as one operator with its gradient: permafrost::mlp.
#pragma once

#include <ATen/core/Tensor.h>

namespace permafrost::nn {

// relu(x * w1^T + b1) * w2^T + b2. x: [N, C] float32 or float64; w1: [H, C]; b1: [H]; w2: [D, H]; b2: [D]. Returns
// [N, D]. Differentiable in all. Bits do not depend on the number of threads. On devices other than the CPU it is made
// of PyTorch's operators.
at::Tensor Mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1, const at::Tensor& w2,
               const at::Tensor& b2);

}  // namespace permafrost::nn
