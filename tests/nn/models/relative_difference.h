#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace permafrost::nn {

// Returns |a - b| / |b| in the Euclidean norm.
inline double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item().toDouble() / std::max(1e-12, b.norm().item().toDouble());
}

}  // namespace permafrost::nn
