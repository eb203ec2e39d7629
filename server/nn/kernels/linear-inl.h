// The parts that linear maps of rows share: products with a bias, and the gradients of their weights.
// Compiled once for each instruction set: included by .cc files that Highway's foreach_target.h includes again.
#if defined(PERMAFROST_NN_KERNELS_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PERMAFROST_NN_KERNELS_LINEAR_INL_H_
#undef PERMAFROST_NN_KERNELS_LINEAR_INL_H_
#else
#define PERMAFROST_NN_KERNELS_LINEAR_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "nn/kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// y [rows, out] = a [rows, in] * packed + bias; kRelu: relu of it, which keeps NaN.
template <bool kRelu, class T>
void AddBias(int64_t rows, int64_t in, int64_t out, const T* a, const T* packed, const T* bias, T* y) {
  Gemm(rows, out, in, a, in, 1, packed, [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR {
    auto sum = hn::Add(v, hn::LoadU(d, bias + j));
    if constexpr (kRelu) sum = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum);
    hn::StoreU(sum, d, y + i * out + j);
  });
}

template <class T>
void SumRows(const T* HWY_RESTRICT rows, int64_t count, int64_t width, T* HWY_RESTRICT sums) {
  std::fill_n(sums, width, T(0));
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < width; ++c) sums[c] += rows[r * width + c];
}

// to = left^T * right over `rows` rows: [m, n] of [rows, m] and [rows, n]. A panel is packed when its turn comes, so
// that it is still in cache, and scratch holds one: PackedSize(rows, 1) values.
template <class T>
void Outer(int64_t rows, int64_t m, int64_t n, const T* left, const T* right, T* scratch, T* to) {
  const int64_t width = PanelWidth<T>();
  for (int64_t j0 = 0; j0 < n; j0 += width) {
    const int64_t columns = std::min(width, n - j0);
    PackPanels(right + j0, n, 1, rows, columns, scratch);
    Gemm(m, columns, rows, left, 1, m, scratch,
         [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR { hn::StoreU(v, d, to + i * n + j0 + j); });
  }
}

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggle
