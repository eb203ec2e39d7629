// A batch's edges in both orders, so that messages and their gradients are gathered: no atomics, and sums whose order
// does not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

struct EdgeIndex {
  at::Tensor in_offsets;   // [N + 1] int32: edges in_offsets[i] .. in_offsets[i + 1] end at row i
  at::Tensor out_offsets;  // [N + 1] int32, into the two below
  at::Tensor out_targets;  // [E] int32: where each edge ends, in the order of where it begins
  at::Tensor out_edges;    // [E] int32: its place among the edges
};

// source, target: [E] int64 rows in [0, nodes), target rising; nodes and E below 2^31. CPU only.
// permafrost::edge_index; not differentiable.
EdgeIndex IndexEdges(const at::Tensor& source, const at::Tensor& target, int64_t nodes);

}  // namespace permafrost::nn
