// Products of two rows, elementwise: what decoders of links score. A registered operator, so that a capture sees it.
// Threads: any; uses ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace permafrost::nn {

// out[p] = x[first[p]] * x[second[p]]. x: [N, C] float32 or float64; first, second: [P] int64, below N. Returns [P, C].
// Differentiable in x. On the CPU one operator; elsewhere, and of other lowerings, two selections and a product.
at::Tensor PairProducts(const at::Tensor& x, const at::Tensor& first, const at::Tensor& second);

}  // namespace permafrost::nn
