// Small matrix products whose results go through an epilogue while they are in registers.
// Compiled once for each instruction set: included by .cc files that Highway's foreach_target.h includes again.
#if defined(PERMAFROST_NN_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PERMAFROST_NN_KERNELS_GEMM_INL_H_
#undef PERMAFROST_NN_KERNELS_GEMM_INL_H_
#else
#define PERMAFROST_NN_KERNELS_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using FullTag = hn::ScalableTag<T>;
template <class T>
using OneLane = hn::CappedTag<T, 1>;

// Columns of a panel: two vectors.
template <class T>
HWY_INLINE int64_t PanelWidth() {
  return 2 * static_cast<int64_t>(hn::Lanes(FullTag<T>()));
}

// Rows of a tile, whose accumulators fill the registers: 12 of 16 with AVX2, 24 of 32 elsewhere.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
// The bytes of the rows that are multiplied with one panel before the next. With the panel they stay in half an L1
// cache, which two hardware threads may share.
constexpr int64_t kBlockBytes = 12 << 10;

// Panels of b [k, n], whose element (p, j) is b[p * row + j * column]: panel after panel, each [k, PanelWidth], zeros
// beyond the last column.
template <class T>
void PackPanels(const T* HWY_RESTRICT b, int64_t row, int64_t column, int64_t k, int64_t n, T* HWY_RESTRICT packed) {
  const FullTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = 2 * lanes;
  for (int64_t j0 = 0; j0 < n; j0 += width) {
    const int64_t columns = std::min(width, n - j0);
    T* const panel = packed + j0 * k;
    if (column == 1 && columns == width) {
      for (int64_t p = 0; p < k; ++p) {
        const T* const from = b + p * row + j0;
        const auto second = hn::LoadU(d, from + lanes);
        hn::StoreU(hn::LoadU(d, from), d, panel + p * width);
        hn::StoreU(second, d, panel + p * width + lanes);
      }
    } else {
      for (int64_t j = 0; j < width; ++j)
        for (int64_t p = 0; p < k; ++p) panel[p * width + j] = j < columns ? b[p * row + (j0 + j) * column] : T(0);
    }
  }
}

// The epilogue for the first columns of a tile's rows.
template <class T, class Epilogue>
HWY_NOINLINE void SomeColumns(const T* rows, int64_t count, int64_t i, int64_t j, int64_t columns,
                              const Epilogue& epilogue) {
  const OneLane<T> one;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < columns; ++c) epilogue(one, i + r, j + c, hn::Set(one, rows[r * PanelWidth<T>() + c]));
}

template <int kRows, class T, class Epilogue>
HWY_INLINE void Tile(int64_t k, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_k, const T* HWY_RESTRICT panel,
                     int64_t i, int64_t j, int64_t columns, const Epilogue& epilogue) {
  const FullTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<FullTag<T>> sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  for (int64_t p = 0; p < k; ++p) {
    const auto b0 = hn::LoadU(d, panel + p * 2 * lanes), b1 = hn::LoadU(d, panel + p * 2 * lanes + lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto v = hn::Set(d, a[r * a_row + p * a_k]);
      sum[r][0] = hn::MulAdd(v, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(v, b1, sum[r][1]);
    }
  }
  if (columns == 2 * lanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      epilogue(d, i + r, j, sum[r][0]);
      epilogue(d, i + r, j + lanes, sum[r][1]);
    }
    return;
  }
  HWY_ALIGN T rows[kRows * 2 * hn::MaxLanes(FullTag<T>())];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum[r][0], d, rows + int64_t{2} * r * lanes);
    hn::StoreU(sum[r][1], d, rows + int64_t{2} * r * lanes + lanes);
  }
  SomeColumns(rows, kRows, i, j, columns, epilogue);
}

// The last rows of a product, fewer than a tile, as one tile of their own: each sum waits for the one before, so that a
// tile of one or two rows takes as long as one of four.
template <int kRows, class T, class Epilogue>
HWY_INLINE void LastRows(int64_t rows, int64_t k, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_k,
                         const T* HWY_RESTRICT panel, int64_t i, int64_t j, int64_t columns, const Epilogue& epilogue) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      Tile<kRows>(k, a, a_row, a_k, panel, i, j, columns, epilogue);
    } else {
      LastRows<kRows - 1>(rows, k, a, a_row, a_k, panel, i, j, columns, epilogue);
    }
  }
}

// For each element (i, j) of a * b: epilogue(tag, i, j, values of the columns from j on). a: [m, k], whose element
// (i, p) is a[i * a_row + p * a_k]; b: [k, n] as PackPanels left it. The order of each element's sum is that of p.
template <class T, class Epilogue>
void Gemm(int64_t m, int64_t n, int64_t k, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_k,
          const T* HWY_RESTRICT packed, const Epilogue& epilogue) {
  const int64_t width = PanelWidth<T>();
  const int64_t fitting = kBlockBytes / static_cast<int64_t>(sizeof(T)) / std::max<int64_t>(1, k);
  const int64_t block = std::max<int64_t>(2, fitting / kTileRows) * kTileRows;
  for (int64_t i0 = 0; i0 < m; i0 += block) {
    const int64_t end = std::min(m, i0 + block);
    for (int64_t j = 0; j < n; j += width) {
      const T* const panel = packed + j * k;
      const int64_t columns = std::min(width, n - j);
      int64_t i = i0;
      for (; i + kTileRows <= end; i += kTileRows)
        Tile<kTileRows>(k, a + i * a_row, a_row, a_k, panel, i, j, columns, epilogue);
      LastRows<kTileRows - 1>(end - i, k, a + i * a_row, a_row, a_k, panel, i, j, columns, epilogue);
    }
  }
}

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggle
