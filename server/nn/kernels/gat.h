// GATv2's attention over CSR, and its gradients, without a tensor of messages: a message lives in registers.
// Threads: any, each with rows of its own. Sums are added up in the order of the edges.
#pragma once

#include <cstdint>

#include "nn/kernels/norm.h"

namespace permafrost::nn {

// For row r and head h, k runs over the row's slots. Slot 0 is the row itself. Slot k > 0 is edge offsets[r] + k - 1.
// An edge from the row to itself takes no part.
//   z_k     = left[source of k] + right[r] (+ edges[k])              [width] of head h
//   score_k = <attention[h], leaky_relu(z_k)>
//   alpha   = softmax of the scores over the slots
//   y[r]    = sum over k of dropout(alpha_k) * left[source of k]
// left: [N, heads * width], right: [T, heads * width]. In an array of all slots, [E + T, heads], slot k of row r is
// at index offsets[r] + r + k.
template <class T>
struct GatRows {
  const T *left, *right, *attention;
  const T *edges, *self_edges;  // [E, ...], [T, ...]; null: there are none
  const int64_t *offsets, *sources;
  int64_t heads, width;
  int64_t first_row;  // the row of left that is row 0 of right
  T slope;
  DropoutMask mask;         // threshold 0 drops nothing
  T kept;                   // 1 / (1 - p)
  const int64_t* row_keys;  // [T]; null: the row's own position
};

// For rows [begin, end), writes alpha of their slots, and their rows of y [T, heads * width].
template <class T>
void GatForward(const GatRows<T>& rows, int64_t begin, int64_t end, T* alpha, T* y);

// Gradients for rows [begin, end), given g = dL/dy. Writes the gradients of the slots' scores, of right, and of edges
// and self_edges (null: not wanted). Adds to the gradient of attention [heads * width].
template <class T>
struct GatTargetGradients {
  T *scores, *right, *edges, *self_edges, *attention;
};
template <class T>
void GatTargetGradient(const GatRows<T>& rows, const T* alpha, const T* g, int64_t begin, int64_t end,
                       const GatTargetGradients<T>& to);

// Writes the gradient of rows [begin, end) of left. The arrays are those of CsrTranspose (nn/ops/segment_ops.h), and
// `targets` is T. first_row must be 0.
template <class T>
struct GatSources {
  const int32_t *offsets, *rows, *edges;
  int64_t targets;
};
template <class T>
void GatSourceGradient(const GatRows<T>& rows, const GatSources<T>& sources, const T* alpha, const T* scores,
                       const T* g, int64_t begin, int64_t end, T* left);

}  // namespace permafrost::nn
