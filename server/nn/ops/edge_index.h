// The edges of a batch, or of a block, in the orders that messages and their gradients are gathered by: no atomics, and
// sums whose order does not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Both orders of a batch's edges.
struct EdgeIndex {
  at::Tensor in_offsets;   // [N + 1] int32: edges in_offsets[i] .. in_offsets[i + 1] end at row i
  at::Tensor out_offsets;  // [N + 1] int32, into the two below
  at::Tensor out_targets;  // [E] int32: where each edge ends, in the order of where it begins
  at::Tensor out_edges;    // [E] int32: its place among the edges
};

// source, target: [E] int64 rows in [0, nodes), target rising; nodes and E below 2^31. On the CPU, and on a GPU.
// permafrost::edge_index; not differentiable.
EdgeIndex IndexEdges(const at::Tensor& source, const at::Tensor& target, int64_t nodes);

// The out-edges of a block whose in-edges are CSR. Source row s has places offsets[s] .. offsets[s + 1): in `rows` they
// hold the rows that gather it, rising, and in `edges` the entries at which they do. A gradient of the first T rows
// alone ends where rows reach T.
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
