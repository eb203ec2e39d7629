#include "nn/kernels/linear.h"

#include <algorithm>

#include "nn/kernels/bfloat16.h"
#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/linear.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Small matrix products. An epilogue processes the results while they are in registers.

template <class T>
using FullTag = hn::ScalableTag<T>;
template <class T>
using OneLane = hn::CappedTag<T, 1>;

// Returns the number of columns of a panel: two vectors.
template <class T>
HWY_INLINE int64_t PanelWidth() {
  return 2 * static_cast<int64_t>(hn::Lanes(FullTag<T>()));
}

// The number of rows of a tile. Its accumulators fill 12 of 16 registers with AVX2, and 24 of 32 elsewhere.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
// The size, in bytes, of the block of rows that is multiplied with one panel after the other. Block and panel
// together take at most half of an L1 cache, since two hardware threads may share the cache.
constexpr int64_t kBlockBytes = 12 << 10;

// Packs b, [k, n], into panels. Element (p, j) is b[p * row + j * column]. Each panel is [k, PanelWidth], with zeros
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

// Calls the epilogue for the first `columns` columns of a tile's rows.
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

// Multiplies the last rows of a product, which are too few for a whole tile, as a smaller tile. Each addition waits
// for the one before, so a tile of one or two rows takes as long as a tile of four.
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

// Calls epilogue(tag, i, j, values of the columns from j on) for the elements (i, j) of a * b. a: [m, k], whose
// element (i, p) is a[i * a_row + p * a_k]; b: [k, n], packed by PackPanels. Each element's sum runs in the order of
// p.
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

// y [rows, out] = a [rows, in] * packed + bias. kRelu also applies ReLU, which keeps NaN.
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

// to [m, n] = left^T * right over `rows` rows. left: [rows, m]; right: [rows, n]. Each panel is packed just before it
// is used, so that it is still in cache. scratch holds one panel: PackedSize(rows, 1) values.
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

template <class T>
void BiasAndActivate(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
      const int64_t at = r * width + c;
      auto sum = hn::Add(hn::LoadU(d, a + at), hn::LoadU(d, bias + c));
      if (addend != nullptr) sum = hn::Add(sum, hn::LoadU(d, addend + at));
      if (relu) sum = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum);
      hn::StoreU(sum, d, y + at);
    });
  }
}

template <class T>
void Activate(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums) {
  ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
    const auto factor = hn::Set(d, kept);
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * width + c;
      auto passed = hn::LoadU(d, grad + at);
      if (y != nullptr) {
        passed = hn::IfThenZeroElse(hn::Le(hn::LoadU(d, y + at), hn::Zero(d)), hn::Mul(passed, factor));
      }
      total = hn::Add(total, passed);
      if (g != nullptr) hn::StoreU(passed, d, g + at);
    }
    hn::StoreU(total, d, sums + c);
  });
}

template <class T>
void Backward(int64_t rows, int64_t in, int64_t out, const T* a, const T* g, const T* packed, T* scratch, T* ga,
              T* gw) {
  if (gw != nullptr) Outer(rows, out, in, g, a, scratch, gw);
  if (packed == nullptr) return;
  Gemm(rows, in, out, g, out, 1, packed,
       [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR { hn::StoreU(v, d, ga + i * in + j); });
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_LINEAR(T, NAME)                                                                                 \
  void Forward##NAME(int64_t rows, int64_t in, int64_t out, const T* a, const T* packed, const T* bias, bool relu, \
                     T* y) {                                                                                       \
    relu ? AddBias<true>(rows, in, out, a, packed, bias, y) : AddBias<false>(rows, in, out, a, packed, bias, y);   \
  }                                                                                                                \
  void Bias##NAME(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y) {      \
    BiasAndActivate(a, bias, addend, relu, rows, width, y);                                                        \
  }                                                                                                                \
  void Activate##NAME(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums) {             \
    Activate(grad, y, kept, rows, width, g, sums);                                                                 \
  }                                                                                                                \
  void Backward##NAME(int64_t rows, int64_t in, int64_t out, const T* a, const T* g, const T* packed, T* scratch,  \
                      T* ga, T* gw) {                                                                              \
    Backward(rows, in, out, a, g, packed, scratch, ga, gw);                                                        \
  }
PERMAFROST_LINEAR(float, F32)
PERMAFROST_LINEAR(double, F64)
#undef PERMAFROST_LINEAR

template <class T>
int64_t PackedSizeOf(int64_t k, int64_t n) {
  return k * ((n + PanelWidth<T>() - 1) / PanelWidth<T>()) * PanelWidth<T>();
}

template <class T>
void Forward(const MlpWidths& w, int64_t rows, const T* a, const T* first, const T* first_bias, const T* second,
             const T* second_bias, T* z1, T* z2) {
  AddBias<true>(rows, w.in, w.hidden, a, first, first_bias, z1);
  AddBias<false>(rows, w.hidden, w.out, z1, second, second_bias, z2);
}

template <class T>
void Backward(const MlpWidths& w, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first, const T* second,
              T* gz1, T* scratch, T* ga, const MlpGradients<T>& weights) {
  SumRows(gz2, rows, w.out, weights.second_bias);
  Outer(rows, w.out, w.hidden, gz2, z1, scratch, weights.second);
  Gemm(rows, w.hidden, w.out, gz2, w.out, 1, second, [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR {
    const auto stopped = hn::Le(hn::LoadU(d, z1 + i * w.hidden + j), hn::Zero(d));
    hn::StoreU(hn::IfThenZeroElse(stopped, v), d, gz1 + i * w.hidden + j);
  });
  SumRows(gz1, rows, w.hidden, weights.first_bias);
  Outer(rows, w.hidden, w.in, gz1, a, scratch, weights.first);
  Gemm(rows, w.in, w.hidden, gz1, w.hidden, 1, first,
       [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR { hn::StoreU(v, d, ga + i * w.in + j); });
}

#define PERMAFROST_MLP(T, NAME)                                                                                   \
  int64_t PackedSize##NAME(int64_t k, int64_t n) { return PackedSizeOf<T>(k, n); }                                \
  void PackForward##NAME(const T* weight, int64_t out, int64_t in, T* packed) {                                   \
    PackPanels(weight, int64_t{1}, in, in, out, packed);                                                          \
  }                                                                                                               \
  void PackBackward##NAME(const T* weight, int64_t out, int64_t in, T* packed) {                                  \
    PackPanels(weight, in, int64_t{1}, out, in, packed);                                                          \
  }                                                                                                               \
  void MlpForward##NAME(const MlpWidths& w, int64_t rows, const T* a, const T* first, const T* first_bias,        \
                        const T* second, const T* second_bias, T* z1, T* z2) {                                    \
    Forward(w, rows, a, first, first_bias, second, second_bias, z1, z2);                                          \
  }                                                                                                               \
  void MlpBackward##NAME(const MlpWidths& w, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first, \
                         const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& weights) {            \
    Backward(w, rows, a, z1, gz2, first, second, gz1, scratch, ga, weights);                                      \
  }
PERMAFROST_MLP(float, F32)
PERMAFROST_MLP(double, F64)
#undef PERMAFROST_MLP

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

// Products of unrounded factors.
namespace full {
#define PERMAFROST_MLP(T, NAME)                                                                                      \
  HWY_EXPORT(PackedSize##NAME);                                                                                      \
  HWY_EXPORT(PackForward##NAME);                                                                                     \
  HWY_EXPORT(PackBackward##NAME);                                                                                    \
  HWY_EXPORT(MlpForward##NAME);                                                                                      \
  HWY_EXPORT(MlpBackward##NAME);                                                                                     \
  static int64_t PackedSize(T, int64_t k, int64_t n) { return HWY_DYNAMIC_DISPATCH(PackedSize##NAME)(k, n); }        \
  static void PackForward(const T* weight, int64_t out, int64_t in, T* packed) {                                     \
    HWY_DYNAMIC_DISPATCH(PackForward##NAME)(weight, out, in, packed);                                                \
  }                                                                                                                  \
  static void PackBackward(const T* weight, int64_t out, int64_t in, T* packed) {                                    \
    HWY_DYNAMIC_DISPATCH(PackBackward##NAME)(weight, out, in, packed);                                               \
  }                                                                                                                  \
  static void Forward(const MlpWidths& widths, int64_t rows, const T* a, const T* first, const T* first_bias,        \
                      const T* second, const T* second_bias, T* z1, T* z2) {                                         \
    HWY_DYNAMIC_DISPATCH(MlpForward##NAME)(widths, rows, a, first, first_bias, second, second_bias, z1, z2);         \
  }                                                                                                                  \
  static void Backward(const MlpWidths& widths, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first, \
                       const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& to) {                      \
    HWY_DYNAMIC_DISPATCH(MlpBackward##NAME)(widths, rows, a, z1, gz2, first, second, gz1, scratch, ga, to);          \
  }
PERMAFROST_MLP(float, F32)
PERMAFROST_MLP(double, F64)
#undef PERMAFROST_MLP

#define PERMAFROST_LINEAR(T, NAME)                                                                                  \
  HWY_EXPORT(Forward##NAME);                                                                                        \
  HWY_EXPORT(Backward##NAME);                                                                                       \
  static void Forward(int64_t rows, int64_t in, int64_t out, const T* a, const T* packed, const T* bias, bool relu, \
                      T* y) {                                                                                       \
    HWY_DYNAMIC_DISPATCH(Forward##NAME)(rows, in, out, a, packed, bias, relu, y);                                   \
  }                                                                                                                 \
  static void Backward(int64_t rows, int64_t in, int64_t out, const T* a, const T* g, const T* packed, T* scratch,  \
                       T* ga, T* gw) {                                                                              \
    HWY_DYNAMIC_DISPATCH(Backward##NAME)(rows, in, out, a, g, packed, scratch, ga, gw);                             \
  }
PERMAFROST_LINEAR(float, F32)
PERMAFROST_LINEAR(double, F64)
#undef PERMAFROST_LINEAR
}  // namespace full

template <class T>
int64_t PackedSize(int64_t k, int64_t n, Products products) {
  return IsBfloat16<T>(products) ? Bfloat16PackedSize(k, n) : full::PackedSize(T(), k, n);
}

template <class T>
void PackForward(const T* weight, int64_t out, int64_t in, Products products, T* packed) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(products)) return PackBfloat16Forward(weight, out, in, packed);
  }
  full::PackForward(weight, out, in, packed);
}

template <class T>
void PackBackward(const T* weight, int64_t out, int64_t in, Products products, T* packed) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(products)) return PackBfloat16Backward(weight, out, in, packed);
  }
  full::PackBackward(weight, out, in, packed);
}

template <class T>
int64_t ProductScratch(int64_t rows, Products products) {
  return IsBfloat16<T>(products) ? 0 : full::PackedSize(T(), rows, 1);
}

template <class T>
void MlpForward(const MlpWidths& w, int64_t rows, const T* a, const T* first, const T* first_bias, const T* second,
                const T* second_bias, T* z1, T* z2) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(w.products)) {
      Bfloat16Linear(rows, w.in, w.hidden, a, first, first_bias, /*relu=*/true, z1);
      return Bfloat16Linear(rows, w.hidden, w.out, z1, second, second_bias, /*relu=*/false, z2);
    }
  }
  full::Forward(w, rows, a, first, first_bias, second, second_bias, z1, z2);
}

template <class T>
void MlpBackward(const MlpWidths& w, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first,
                 const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& weights) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(w.products)) {
      Bfloat16ColumnSums(rows, w.out, gz2, weights.second_bias);
      Bfloat16Outer(rows, w.out, w.hidden, gz2, z1, weights.second);
      Bfloat16InputGradient(rows, w.hidden, w.out, gz2, second, z1, gz1);
      Bfloat16ColumnSums(rows, w.hidden, gz1, weights.first_bias);
      Bfloat16Outer(rows, w.hidden, w.in, gz1, a, weights.first);
      return Bfloat16InputGradient(rows, w.in, w.hidden, gz1, first, nullptr, ga);
    }
  }
  full::Backward(w, rows, a, z1, gz2, first, second, gz1, scratch, ga, weights);
}

#define PERMAFROST_MLP(T)                                                                                           \
  template int64_t PackedSize<T>(int64_t, int64_t, Products);                                                       \
  template void PackForward<T>(const T*, int64_t, int64_t, Products, T*);                                           \
  template void PackBackward<T>(const T*, int64_t, int64_t, Products, T*);                                          \
  template void MlpForward<T>(const MlpWidths&, int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*); \
  template void MlpBackward<T>(const MlpWidths&, int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*, \
                               T*, const MlpGradients<T>&);                                                         \
  template int64_t ProductScratch<T>(int64_t, Products);
PERMAFROST_MLP(float)
PERMAFROST_MLP(double)
#undef PERMAFROST_MLP

template <class T>
void LinearForward(const LinearWidths& w, int64_t rows, const T* a, const T* packed, const T* bias, bool relu, T* y) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(w.products)) return Bfloat16Linear(rows, w.in, w.out, a, packed, bias, relu, y);
  }
  full::Forward(rows, w.in, w.out, a, packed, bias, relu, y);
}

template <class T>
void LinearBackward(const LinearWidths& w, int64_t rows, const T* a, const T* g, const T* packed, T* scratch, T* ga,
                    T* gw) {
  if constexpr (IsFloat32<T>) {
    if (IsBfloat16<T>(w.products)) {
      if (gw != nullptr) Bfloat16Outer(rows, w.out, w.in, g, a, gw);
      if (packed != nullptr) Bfloat16InputGradient(rows, w.in, w.out, g, packed, nullptr, ga);
      return;
    }
  }
  full::Backward(rows, w.in, w.out, a, g, packed, scratch, ga, gw);
}

#define PERMAFROST_LINEAR(T, NAME)                                                                                    \
  HWY_EXPORT(Bias##NAME);                                                                                             \
  HWY_EXPORT(Activate##NAME);                                                                                         \
  template <>                                                                                                         \
  void AddBiasActivate<T>(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y) { \
    HWY_DYNAMIC_DISPATCH(Bias##NAME)(a, bias, addend, relu, rows, width, y);                                          \
  }                                                                                                                   \
  template <>                                                                                                         \
  void ActivationGradient<T>(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums) {         \
    HWY_DYNAMIC_DISPATCH(Activate##NAME)(grad, y, kept, rows, width, g, sums);                                        \
  }                                                                                                                   \
  template void LinearForward<T>(const LinearWidths&, int64_t, const T*, const T*, const T*, bool, T*);               \
  template void LinearBackward<T>(const LinearWidths&, int64_t, const T*, const T*, const T*, T*, T*, T*);
PERMAFROST_LINEAR(float, F32)
PERMAFROST_LINEAR(double, F64)
#undef PERMAFROST_LINEAR

}  // namespace permafrost::nn
#endif
