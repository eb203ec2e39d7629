// Weighted sums and maxima of rows over CSR, and the sums of GINE's and GIN's messages, with their gradients over the
// transposed CSR. Every kernel here gathers: each row is written once, by the thread that adds up the row's edges in
// their order.
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
  const T *weights, *self, *scale;  // null: weights all 1, self all 0, scale all 1
};
// Computes rows [begin, end). `to` points to output row `begin`, and output rows are `to_stride` apart.
template <class T>
void SumSegments(const SegmentRows<T>& rows, int64_t begin, int64_t end, T* to, int64_t to_stride);

// The gradient of x. gx[s] is the sum, over the places p of row s, of weights[edges[p]] * scale[r] * g[r]. Here r is
// rows[p]. Places with r >= targets are left out. If s < targets, scale[s] * self[s] * g[s] + own[s] is added to
// gx[s].
template <class T>
struct SegmentGradient {
  // The arrays of CsrTranspose (nn/ops/segment_ops.h). Row s has places [offsets[s], offsets[s + 1]), in the order of
  // rising r. edges[p] is the number of the edge at place p.
  const int32_t *offsets, *rows, *edges;
  int64_t targets;
  const T *g, *own;  // [targets, width], rows `stride` apart; own null: all 0
  int64_t stride, width;
  const T *weights, *self, *scale;  // as in SegmentRows
};
// Computes rows [begin, end) of gx [N, width].
template <class T>
void SumGradient(const SegmentGradient<T>& gradient, int64_t begin, int64_t end, T* gx);

template <class T>
struct MaxRows {
  const T* x;  // [N, width]
  int64_t width;
  const int64_t *offsets, *source;
};
// For rows [begin, end): largest[r] = max over e in [offsets[r], offsets[r + 1]) of x[source[e]]; 0 if the segment is
// empty.
template <class T>
void LargestOfSegments(const MaxRows<T>& rows, int64_t begin, int64_t end, T* largest);
// share[r] = g[r] / the number of entries in the segment that equal largest[r]; 0 if there is none.
template <class T>
void SharesOfLargest(const MaxRows<T>& rows, const T* largest, const T* g, int64_t begin, int64_t end, T* share);

// gx[s] is the sum of share[r] over the places p of row s where x[s] equals largest[r]. Here r is rows[p]. Places
// with r >= targets are left out.
template <class T>
struct MaxGradient {
  // The arrays of CsrTranspose (nn/ops/segment_ops.h). Row s has places [offsets[s], offsets[s + 1]), in the order of
  // rising r.
  const int32_t *offsets, *rows;
  int64_t targets;
  const T *x, *largest, *share;  // x: [N, width]; largest, share: [targets, width]
  int64_t width;
};
// Computes rows [begin, end) of gx [N, width].
template <class T>
void GradientOfLargest(const MaxGradient<T>& gradient, int64_t begin, int64_t end, T* gx);

// Message passing of GINE and GIN without a tensor of messages: relu(x_j + e_ji) lives in registers.
// GineMessages holds the inputs. The message of edge k reads row code[k] of `edges`, or row k if there is no code.
// Without edges (GIN), the message is x_j itself, without ReLU.
template <class T>
struct GineMessages {
  const T* x;      // [N, width]
  const T* edges;  // [codes or E, width]; null: GIN
  const int32_t* code;
  int64_t width;
};

// For rows i in [begin, end): sum[i] = x[i] + the sum of relu(x[source[k]] + edge row of k) over k in [offsets[i],
// offsets[i + 1]). sum: [N, width].
template <class T>
void GineSum(const GineMessages<T>& messages, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
             T* sum);

// The gradient, as a gather over out-edges. For rows j in [begin, end): gx[j] = g[j] + the sum, over p in
// [offsets[j], offsets[j + 1]), of g[target[p]] where x[j] + the row of edge[p] > 0. With codes, ge is [codes,
// width], and each term is added to row code[edge[p]]. Without codes, ge is [E, width], and each term is written to
// row edge[p]. For GIN all of g passes, and ge is not used.
template <class T>
void GineGradient(const GineMessages<T>& messages, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                  const T* g, int64_t begin, int64_t end, T* gx, T* ge);

}  // namespace permafrost::nn
