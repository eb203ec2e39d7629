// The largest values of rows over CSR, and their gradients over the transposed CSR: gathers both, so that each row is
// written once, by one thread, in the order of its edges.
// Threads: any.
#pragma once

#include <cstdint>

namespace permafrost::nn {

template <class T>
struct MaxRows {
  const T* x;  // [N, width]
  int64_t width;
  const int64_t *offsets, *source;
};
// largest[r] = max over e in [offsets[r], offsets[r + 1]) of x[source[e]], 0 where there is none: of rows [begin, end).
template <class T>
void LargestOfSegments(const MaxRows<T>& rows, int64_t begin, int64_t end, T* largest);
// share[r] = g[r] / how many entries of the segment are as large as largest[r], 0 where there is none.
template <class T>
void SharesOfLargest(const MaxRows<T>& rows, const T* largest, const T* g, int64_t begin, int64_t end, T* share);

// gx[s] = sum over places p of s, with r = rows[p] < targets, of share[r] where x[s] is as large as largest[r].
template <class T>
struct MaxGradient {
  // As CsrTranspose (nn/ops/edge_index.h): places of row s, r rising within it.
  const int32_t *offsets, *rows;
  int64_t targets;
  const T *x, *largest, *share;  // [N, width], [targets, width] both
  int64_t width;
};
// Rows [begin, end) of gx [N, width].
template <class T>
void GradientOfLargest(const MaxGradient<T>& gradient, int64_t begin, int64_t end, T* gx);

}  // namespace permafrost::nn
