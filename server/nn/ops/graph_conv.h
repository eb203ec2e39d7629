// A graph convolution with ReLU and dropout as one operator that a capture sees whole, permafrost::graph_conv, and its
// backward:
//   sum = scale * (sum over edges (j, i) of weight_ji * x_j + self_i * x_i)
//   y   = dropout(relu([sum, x_i] * W^T + bias))
// On the CPU rows are worked through in chunks, each from the sum to the dropout while it is in cache; no tensor of
// messages is made. Bits do not depend on the number of threads. GraphSAGE with means is this with scale = 1 / degree
// and the row itself beside the sum; GCN with its norm and the sum alone. Where W makes rows narrower, it goes before
// the sum: then there is no W here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/ops/dropout.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

// Floating tensors are float32 or float64, all of one type; those of weights, self and scale are not differentiated.
struct ConvEdges {
  at::Tensor offsets;      // [T + 1] int64: row r sums edges offsets[r] .. offsets[r + 1)
  at::Tensor sources;      // [E] int64 rows of x; E may be more than the last offset
  CsrTranspose transpose;  // of these rows and sources, or of more
  at::Tensor weights;      // [E] or undefined: all 1
  at::Tensor self;         // [T] or undefined: all 0
  at::Tensor scale;        // [T] or undefined: all 1
};

struct ConvActivation {
  bool relu = true;
  at::Tensor step;  // [1] int64: optimizer steps done. For dropout, as `key` and `row_keys` are: see dropout.h.
  DropoutKey key;
  double p = 0;         // > 0 only with relu
  at::Tensor row_keys;  // [T] or longer
};

// x: [N, C], T <= N. edges.offsets undefined: the sums are made already, T = N and x is [sum, x_i] or the sum.
// weight: [D, K], where K is 2 * C if it takes [sum, x_i], or C, the sum alone; undefined: y = dropout(relu(sum + bias
// + addend)), D = C. bias: [D]. addend: [T, D] or undefined, only without weight. Returns [T, D]. Differentiable in x,
// weight, bias, addend.
at::Tensor GraphConv(const at::Tensor& x, const ConvEdges& edges, const at::Tensor& weight, const at::Tensor& bias,
                     const at::Tensor& addend, const ConvActivation& activation);

// Computes the same with PyTorch's operators and segment_ops.h. It is the reference, and runs on devices other than the
// CPU.
at::Tensor GraphConvPlain(const at::Tensor& x, const ConvEdges& edges, const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& addend, const ConvActivation& activation);

}  // namespace permafrost::nn
