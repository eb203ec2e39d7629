// A whole layer of GINE or GIN as one operator, permafrost::gine_layer, with its backward. A capture sees the
// operator whole.
//   sum = x_i + sum over edges (j, i) of relu(x_j + e_ji) for GINE, or of x_j for GIN
//   y   = dropout(relu(batch_norm(relu(sum * w1^T + b1) * w2^T + b2)))
// On the CPU real rows are processed in chunks. Each chunk stays in cache from the sum to the norm's partial moments.
// There is no tensor of messages, and padding costs nothing. Bits depend neither on padding nor on the number of
// threads. Source: Hu et al. 2020 and Xu et al. 2019 (PyG's GINEConv and GINConv with eps = 0); layer-wise fusion as
// Graphite (Gong et al. 2022).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/batch_norm.h"
#include "nn/ops/dropout.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type.
struct GineEdges {
  at::Tensor source, target;  // [E] int64, as IndexEdges takes them
  EdgeIndex index;            // IndexEdges of both; read only if HasColumnKernels (lowering.h)
  // rows is [codes, C], and edge k has the value e = rows[code[k]]. If code is undefined, rows is [E, C], and the
  // value is rows[k]. If rows is undefined, the layer is GIN.
  at::Tensor rows;
  at::Tensor code;  // [E] int32
};

struct GineWeights {
  at::Tensor w1, b1, w2, b2;                     // [H, C], [H], [D, H], [D]
  at::Tensor norm_weight, norm_bias;             // [D]
  mutable at::Tensor running_mean, running_var;  // [D]
  mutable at::Tensor batches_tracked;            // [] int64: batches that have updated the running statistics
};

struct GineDropout {
  at::Tensor step;      // [1] int64: optimizer steps done
  at::Tensor row_keys;  // [N] int64 (dropout.h); undefined: each row's own position
  DropoutKey key;
  double p = 0;
};

// Computes only the sum of a layer, with PyTorch's operators. Differentiable in x and edges.rows.
at::Tensor SumGineMessages(const at::Tensor& x, const GineEdges& edges);

// Training. x: [N, C]; real_rows: [1] int64 in [0, N]. Edges into real rows must come from real rows. Returns [N, D],
// with padding rows 0. Updates the running statistics as MaskedBatchNormRelu does. Counts the batch in
// batches_tracked if it updated these statistics. Differentiable in x, edges.rows and the weights.
at::Tensor GineLayer(const at::Tensor& x, const GineEdges& edges, const at::Tensor& real_rows,
                     const GineWeights& weights, const GineDropout& dropout, const BatchNormOptions& norm = {});

// Evaluation, by the running statistics and without dropout. Not differentiable.
at::Tensor GineLayerEval(const at::Tensor& x, const GineEdges& edges, const at::Tensor& real_rows,
                         const GineWeights& weights, const BatchNormOptions& norm = {});

// These two functions compute the results of GineLayer and GineLayerEval by PyTorch's operators. They are the
// reference, and run wherever the fused operator does not.
at::Tensor GineLayerPlain(const at::Tensor& x, const GineEdges& edges, const at::Tensor& real_rows,
                          const GineWeights& weights, const GineDropout& dropout, const BatchNormOptions& norm = {});
at::Tensor GineLayerEvalPlain(const at::Tensor& x, const GineEdges& edges, const GineWeights& weights,
                              const BatchNormOptions& norm = {});

// Floating tensors are float32 or float64, all of one type.
struct SummedEdges {
  at::Tensor offsets;      // [T + 1] int64: edges [offsets[r], offsets[r + 1]) end at row r
  at::Tensor sources;      // [E] int64 rows of x; E may exceed the last offset
  CsrTranspose transpose;  // TransposeCsr of these edges, or of the edges of more rows; for the backward
  // rows is [codes, C], and edge k has the value e = rows[code[k]]. If code is undefined, rows is [E, C], and the value
  // is rows[k].
  at::Tensor rows;
  at::Tensor code;        // [E] int32
  int64_t first_row = 0;  // the row of x that is row 0 of the sums; above 0 only without gradients
};

// Computes GINE's sum over a block's in-edges alone (permafrost::edge_sum): sum_i = x_i + sum over edges (j, i) of
// relu(x_j + e_ji). x: [N, C], T <= N. Returns [T, C]. Differentiable in x and edges.rows.
at::Tensor EdgeSum(const at::Tensor& x, const SummedEdges& edges);

}  // namespace permafrost::nn
