// Returns a copy of a tensor that requires a gradient.
#pragma once

#include <ATen/ATen.h>

namespace permafrost::nn {

inline at::Tensor Leaf(const at::Tensor& t) { return t.detach().clone().set_requires_grad(true); }

}  // namespace permafrost::nn
