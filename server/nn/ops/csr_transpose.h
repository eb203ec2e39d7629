// The out-edges of a block whose in-edges are CSR: what its gradients are gathered by.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Source row s has places offsets[s] .. offsets[s + 1): in `rows` they hold the rows that gather it, rising, and in
// `edges` the entries at which they do. A gradient of the first T rows alone ends where rows reach T.
struct CsrTranspose {
  at::Tensor offsets;  // [N + 1] int32
  at::Tensor rows;     // [E] int32, of which entries beyond the last offset are anything
  at::Tensor edges;    // [E] int32, likewise
};

// offsets: [R + 1] int64, from 0, rising; sources: [E] int64, those up to the last offset in [0, nodes); nodes and E
// below 2^31. permafrost::transpose_csr, one pass on one thread; not differentiable. On devices other than the CPU
// nothing is made, since nothing reads it there.
CsrTranspose TransposeCsr(const at::Tensor& offsets, const at::Tensor& sources, int64_t nodes);

}  // namespace permafrost::nn
