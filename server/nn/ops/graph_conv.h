// A graph convolution with ReLU and dropout as one operator, permafrost::graph_conv, with its backward. A capture
// sees the operator whole.
//   sum = scale * (sum over edges (j, i) of weight_ji * x_j + self_i * x_i)
//   y   = dropout(relu([sum, x_i] * W^T + bias))
// On the CPU rows are processed in chunks. Each chunk stays in cache from the sum to the dropout, and there is no
// tensor of messages. Bits do not depend on the number of threads.
// GraphSAGE with mean aggregation sets scale = 1 / degree, and multiplies W by [sum, x_i]. GCN sets the factors by
// its normalisation, and multiplies W by the sum alone. If W makes rows narrower, the caller applies it before the
// sum, and passes no W here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/dropout.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type. weights, self and scale are not differentiated.
struct ConvEdges {
  at::Tensor offsets;      // [T + 1] int64: row r sums edges [offsets[r], offsets[r + 1])
  at::Tensor sources;      // [E] int64 rows of x; E may exceed the last offset
  CsrTranspose transpose;  // TransposeCsr of these edges, or of the edges of more rows
  at::Tensor weights;      // [E] or undefined: all 1
  at::Tensor self;         // [T] or undefined: all 0
  at::Tensor scale;        // [T] or undefined: all 1
};

struct ConvActivation {
  bool relu = true;
  at::Tensor step;  // [1] int64: optimizer steps done. step, key, row_keys: see dropout.h
  DropoutKey key;
  double p = 0;         // > 0 only with relu
  at::Tensor row_keys;  // [T] or longer
};

// x: [N, C], T <= N. If edges.offsets is undefined, the sums are precomputed: T = N, and x is [sum, x_i] or the sum
// alone. weight: [D, K], where K is 2 * C for [sum, x_i] and C for the sum alone. Without weight, y =
// dropout(relu(sum + bias + addend)) and D = C. bias: [D]. addend: [T, D], or undefined; with weight, it must be
// undefined. Returns [T, D]. Differentiable in x, weight, bias and addend.
at::Tensor GraphConv(const at::Tensor& x, const ConvEdges& edges, const at::Tensor& weight, const at::Tensor& bias,
                     const at::Tensor& addend, const ConvActivation& activation);

// Computes the result of GraphConv by PyTorch's operators and segment_ops.h. It is the reference, and runs on devices
// other than the CPU.
at::Tensor GraphConvPlain(const at::Tensor& x, const ConvEdges& edges, const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& addend, const ConvActivation& activation);

}  // namespace permafrost::nn
