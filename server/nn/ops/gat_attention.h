// The attention and aggregation of GATv2 as one operator, permafrost::gat_attention, with its backward. A capture
// sees the operator whole. For row i and head h, over the in-edges (j, i) and a self-loop:
//   score_ji = <attention[h], leaky_relu(left_j + right_i + e_ji)>
//   y_i      = sum over j of dropout(softmax_j(score_ji)) * left_j
// On the CPU rows are processed one by one, and there is no tensor of messages. Bits do not depend on the number of
// threads. Every row gets exactly one self-loop; edges from a row to itself are ignored.
// Source: Brody et al. 2022, "How attentive are graph attention networks?", as PyG's GATv2Conv.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/dropout.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type. W = heads * channels per head.
struct GatEdges {
  at::Tensor offsets;      // [T + 1] int64: edges [offsets[r], offsets[r + 1]) end at row r
  at::Tensor sources;      // [E] int64 rows of left; E may exceed the last offset
  CsrTranspose transpose;  // TransposeCsr of these edges, or of the edges of more rows; for the backward
  // The value e of each edge, [E, W], and of each self-loop, [T, W]. If both are undefined, e is 0.
  at::Tensor rows, self_rows;
};

struct GatOptions {
  int64_t heads = 1;
  double slope = 0.2;  // of leaky_relu for negative values
  // For the attention's dropout (dropout.h). Row r numbers its slots: slot 0 is the self-loop, then come its edges.
  // The key of slot k is row_keys[r] * 0x9e3779b1 + k, and the dropout's column is the head.
  at::Tensor step;
  DropoutKey key;
  double p = 0;
  at::Tensor row_keys;    // [T] or longer; undefined: the row's own position
  int64_t first_row = 0;  // the row of left that is row 0 of right; above 0 only without gradients
};

// left: [N, W]; right: [T, W], where row r belongs to row first_row + r of left; attention: [W], one head after the
// other. Returns [T, W]. Differentiable in left, right, attention, edges.rows and edges.self_rows.
at::Tensor GatAttention(const at::Tensor& left, const at::Tensor& right, const at::Tensor& attention,
                        const GatEdges& edges, const GatOptions& options);

// Computes the result of GatAttention by PyTorch's operators and segment_ops.h. It is the reference, and runs on
// devices other than the CPU.
at::Tensor GatAttentionPlain(const at::Tensor& left, const at::Tensor& right, const at::Tensor& attention,
                             const GatEdges& edges, const GatOptions& options);

}  // namespace permafrost::nn
