// Weighted sums of rows over CSR, their largest values, and the sums of GINE's and GIN's messages; their gradients over
// the transposed CSR. All are gathers, so that each row is written once, by one thread, in the order of its edges.
// Threads: any, each with rows of its own.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// to[r] = scale[r] * (sum over e in [offsets[r], offsets[r + 1]) of weights[e] * x[source[e]] + self[r] * x[r]).
template <class T>
struct SegmentRows {
  const T* x;  // rows of `width` values, `stride` apart
  int64_t stride, width;
  const int64_t *offsets, *source;
  const T *weights, *self, *scale;  // null: all 1, all 0, all 1
};
// Rows [begin, end), written `to_stride` apart to `to`, which is the first of them.
template <class T>
void SumSegments(const SegmentRows<T>& rows, int64_t begin, int64_t end, T* to, int64_t to_stride);

// The gradient of x: gx[s] = sum over places p of s of weight * scale[r] * g[r], where r = rows[p] < targets, and
// scale[s] * self[s] * g[s] + own[s] for s < targets.
template <class T>
struct SegmentGradient {
  // The arrays are those of CsrTranspose (nn/ops/segment_ops.h): places of row s, r rising within it; its edge, for its
  // weight.
  const int32_t *offsets, *rows, *edges;
  int64_t targets;
  const T *g, *own;  // [targets, width], both `stride` apart; own null: 0
  int64_t stride, width;
  const T *weights, *self, *scale;  // as of SegmentRows
};
// Rows [begin, end) of gx [N, width].
template <class T>
void SumGradient(const SegmentGradient<T>& gradient, int64_t begin, int64_t end, T* gx);

template <class T>
struct MaxRows {
  const T* x;  // [N, width]
  int64_t width;
  const int64_t *offsets, *source;
};
// For rows [begin, end): largest[r] = max over e in [offsets[r], offsets[r + 1]) of x[source[e]], 0 where there is
// none.
template <class T>
void LargestOfSegments(const MaxRows<T>& rows, int64_t begin, int64_t end, T* largest);
// share[r] = g[r] / how many entries of the segment are as large as largest[r], 0 where there is none.
template <class T>
void SharesOfLargest(const MaxRows<T>& rows, const T* largest, const T* g, int64_t begin, int64_t end, T* share);

// gx[s] = sum over places p of s, with r = rows[p] < targets, of share[r] where x[s] is as large as largest[r].
template <class T>
struct MaxGradient {
  // As CsrTranspose (nn/ops/segment_ops.h): places of row s, r rising within it.
  const int32_t *offsets, *rows;
  int64_t targets;
  const T *x, *largest, *share;  // [N, width], [targets, width] both
  int64_t width;
};
// Rows [begin, end) of gx [N, width].
template <class T>
void GradientOfLargest(const MaxGradient<T>& gradient, int64_t begin, int64_t end, T* gx);

// Message passing of GINE and GIN without a tensor of messages: relu(x_j + e_ji) lives in registers.
// The inputs that messages are made of. The row of edge k in `edges` is code[k], or k where there is no code. Without
// edges (GIN) the message is x_j itself, without ReLU.
template <class T>
struct GineMessages {
  const T* x;      // [N, width]
  const T* edges;  // [codes or E, width]; null: GIN
  const int32_t* code;
  int64_t width;
};

// For rows i in [begin, end): sum[i] = x[i] + the sum of relu(x[source[k]] + edge k) over k in [offsets[i],
// offsets[i + 1]). sum: [N, width].
template <class T>
void GineSum(const GineMessages<T>& messages, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
             T* sum);

// The gradient, as a gather over out-edges. For rows j in [begin, end): gx[j] = g[j] + the sum of g[target[p]] where
// x[j] + edge[p] > 0, over p in [offsets[j], offsets[j + 1]); the same is added to ge, [codes, width], at the edge's
// code, or written to row edge[p] of ge, [E, width], where there is no code. GIN: all of g passes, and ge is not read.
template <class T>
void GineGradient(const GineMessages<T>& messages, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                  const T* g, int64_t begin, int64_t end, T* gx, T* ge);

}  // namespace permafrost::nn
