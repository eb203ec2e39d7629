// Sparse rows made dense, as a registered operator (so that a capture sees it).
// Threads: any; uses ATen's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// out[r, columns[e]] = the sum of values[e] over e in [offsets[r], offsets[r + 1]) of that column; 0 elsewhere.
// offsets: [R + 1] int64, from 0, rising; columns: [E] int64 < width, of which entries beyond the last offset are
// padding; values: [E] of `type`, or undefined: all 1. Returns [R, width]. Not differentiable.
at::Tensor DenseOfSparse(const at::Tensor& offsets, const at::Tensor& columns, const at::Tensor& values, int64_t width,
                         at::ScalarType type);

}  // namespace permafrost::nn
