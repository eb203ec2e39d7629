// Dropout whose mask is a pure function of (seed, step, layer, row, column). The mask needs no random generator. So a
// captured step draws new masks at each replay, and padding shifts no mask. A resumed run draws the masks of an
// uninterrupted run. The operator permafrost::dropout is its own gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Identifies one of a job's masks.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t layer = 0;
};

// Returns [N, C]: each value is x / (1 - p), or 0 with probability p. x: [N, C] floating; step: [1] int64, steps
// done. row_keys: [N] int64, the key of each row (only the low 32 bits are used); undefined: the row's own position.
// 0 <= p < 1; p = 0 returns x. Masks are equal on every device. Source: Srivastava et al. 2014; the hash is
// MurmurHash3's finalizer (Appleby), chained over the key, the row and the column.
at::Tensor Dropout(const at::Tensor& x, const at::Tensor& step, const DropoutKey& key, double p,
                   const at::Tensor& row_keys = {});

// Returns float32 values in [0, 1), of the shape [N, C] of `like`. Each is a multiple of 2^-24, made from the hash
// that dropout compares with p, and equal on every device. permafrost::uniform; not differentiable.
at::Tensor Uniform(const at::Tensor& like, const at::Tensor& step, const DropoutKey& key);

}  // namespace permafrost::nn
