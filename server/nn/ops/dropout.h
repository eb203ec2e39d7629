// Dropout whose mask is a pure function of (seed, step, layer, row, column): no generator, so that a captured step
// draws new masks at each replay, padding shifts none, and a resumed run draws what an undisturbed one would.
// permafrost::dropout is one operator; its gradient is itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Names one of a job's masks.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t layer = 0;
};

// x: [N, C] floating; step: [1] int64, steps done; row_keys: [N] int64, what stands for each row in the key (its low 32
// bits count), or undefined: its place. Returns [N, C]: x / (1 - p) where kept, 0 with probability p.
// 0 <= p < 1; p = 0 returns x. Equal on every device. Source: Srivastava et al. 2014; the hash is MurmurHash3's
// finalizer (Appleby), chained over the key, the row and the column.
at::Tensor Dropout(const at::Tensor& x, const at::Tensor& step, const DropoutKey& key, double p,
                   const at::Tensor& row_keys = {});

// Returns [N, C] float32 values in [0, 1), as many as `like` has. Each is a multiple of 2^-24, from the hash that
// dropout compares with p, and equal on every device. permafrost::uniform; not differentiable.
at::Tensor Uniform(const at::Tensor& like, const at::Tensor& step, const DropoutKey& key);

}  // namespace permafrost::nn
