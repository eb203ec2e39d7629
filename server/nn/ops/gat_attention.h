// The attention and aggregation of GATv2 as one operator that a capture sees whole, permafrost::gat_attention, and its
// backward. For row i and head h, over its in-edges (j, i) and a self-loop:
//   score_ji = <attention[h], leaky_relu(left_j + right_i + e_ji)>
//   y_i      = sum over j of dropout(softmax_j(score_ji)) * left_j
// On the CPU rows are worked through one by one; no tensor of messages is made. Bits do not depend on the number of
// threads. Every row has one self-loop: edges from a row to itself take no part beside it. Source: Brody et al. 2022,
// "How attentive are graph attention networks?", as PyG's GATv2Conv.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/dropout.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type. W = heads * channels of a head.
struct GatEdges {
  at::Tensor offsets;      // [T + 1] int64: edges offsets[r] .. offsets[r + 1] end at row r
  at::Tensor sources;      // [E] int64 rows of left; E may be more than the last offset
  CsrTranspose transpose;  // of these rows and sources, or of more; read by the backward
  // e of each edge [E, W] and of each self-loop [T, W]; both undefined: none.
  at::Tensor rows, self_rows;
};

struct GatOptions {
  int64_t heads = 1;
  double slope = 0.2;  // of leaky_relu below 0
  // For the attention's dropout, as in dropout.h: the key of row r's slot k (0: the self-loop, then its edges) is
  // row_keys[r] * 0x9e3779b1 + k, the column is the head.
  at::Tensor step;
  DropoutKey key;
  double p = 0;
  at::Tensor row_keys;    // [T] or longer; undefined: the row's own place
  int64_t first_row = 0;  // of left, which is row 0 of right; above 0 only without gradients
};

// left: [N, W]; right: [T, W], whose row r stands for row first_row + r of left; attention: [W], heads one after the
// other. Returns [T, W]. Differentiable in left, right, attention, edges.rows and edges.self_rows.
at::Tensor GatAttention(const at::Tensor& left, const at::Tensor& right, const at::Tensor& attention,
                        const GatEdges& edges, const GatOptions& options);

// Computes the same with PyTorch's operators and segment_ops.h. It is the reference, and runs on devices other than the
// CPU.
at::Tensor GatAttentionPlain(const at::Tensor& left, const at::Tensor& right, const at::Tensor& attention,
                             const GatEdges& edges, const GatOptions& options);

}  // namespace permafrost::nn
