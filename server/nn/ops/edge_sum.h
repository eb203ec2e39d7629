// GINE's sum over a block's in-edges as one operator that a capture sees whole, permafrost::edge_sum, and its backward:
//   sum_i = x_i + sum over edges (j, i) of relu(x_j + e_ji)
// On the CPU no tensor of messages is made. Bits do not depend on the number of threads. Source: Hu et al. 2020, as
// PyG's GINEConv with eps = 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/edge_index.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type.
struct SummedEdges {
  at::Tensor offsets;      // [T + 1] int64: edges offsets[r] .. offsets[r + 1] end at row r
  at::Tensor sources;      // [E] int64 rows of x; E may be more than the last offset
  CsrTranspose transpose;  // of these rows and sources, or of more; read by the backward
  // e of edge k is rows[code[k]], rows: [codes, C]; or rows[k], rows: [E, C], where code is undefined.
  at::Tensor rows;
  at::Tensor code;        // [E] int32
  int64_t first_row = 0;  // of x, which is row 0 of the sums; above 0 only without gradients
};

// x: [N, C], T <= N. Returns [T, C]. Differentiable in x and edges.rows.
at::Tensor EdgeSum(const at::Tensor& x, const SummedEdges& edges);

// The same of PyTorch's operators: the reference, and what devices other than the CPU run.
at::Tensor EdgeSumPlain(const at::Tensor& x, const SummedEdges& edges);

}  // namespace permafrost::nn
