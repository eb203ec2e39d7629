#include "nn/kernels/mlp.h"

#include "nn/kernels/bfloat16.h"
#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/mlp.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/linear-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

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
    const auto active = hn::Gt(hn::LoadU(d, z1 + i * w.hidden + j), hn::Zero(d));
    hn::StoreU(hn::IfThenElseZero(active, v), d, gz1 + i * w.hidden + j);
  });
  SumRows(gz1, rows, w.hidden, weights.first_bias);
  Outer(rows, w.hidden, w.in, gz1, a, scratch, weights.first);
  Gemm(rows, w.in, w.hidden, gz1, w.hidden, 1, first,
       [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR { hn::StoreU(v, d, ga + i * w.in + j); });
}

// Highway exports plain functions: one of each for each type.
#define PERMAFROST_MLP(T, NAME)                                                                                \
  int64_t PackedSize##NAME(int64_t k, int64_t n) { return PackedSizeOf<T>(k, n); }                             \
  void PackForward##NAME(const T* weight, int64_t out, int64_t in, T* packed) {                                \
    PackPanels(weight, int64_t{1}, in, in, out, packed);                                                       \
  }                                                                                                            \
  void PackBackward##NAME(const T* weight, int64_t out, int64_t in, T* packed) {                               \
    PackPanels(weight, in, int64_t{1}, out, in, packed);                                                       \
  }                                                                                                            \
  void Forward##NAME(const MlpWidths& w, int64_t rows, const T* a, const T* first, const T* first_bias,        \
                     const T* second, const T* second_bias, T* z1, T* z2) {                                    \
    Forward(w, rows, a, first, first_bias, second, second_bias, z1, z2);                                       \
  }                                                                                                            \
  void Backward##NAME(const MlpWidths& w, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first, \
                      const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& weights) {            \
    Backward(w, rows, a, z1, gz2, first, second, gz1, scratch, ga, weights);                                   \
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
  HWY_EXPORT(Forward##NAME);                                                                                         \
  HWY_EXPORT(Backward##NAME);                                                                                        \
  static int64_t PackedSize(T, int64_t k, int64_t n) { return HWY_DYNAMIC_DISPATCH(PackedSize##NAME)(k, n); }        \
  static void PackForward(const T* weight, int64_t out, int64_t in, T* packed) {                                     \
    HWY_DYNAMIC_DISPATCH(PackForward##NAME)(weight, out, in, packed);                                                \
  }                                                                                                                  \
  static void PackBackward(const T* weight, int64_t out, int64_t in, T* packed) {                                    \
    HWY_DYNAMIC_DISPATCH(PackBackward##NAME)(weight, out, in, packed);                                               \
  }                                                                                                                  \
  static void Forward(const MlpWidths& widths, int64_t rows, const T* a, const T* first, const T* first_bias,        \
                      const T* second, const T* second_bias, T* z1, T* z2) {                                         \
    HWY_DYNAMIC_DISPATCH(Forward##NAME)(widths, rows, a, first, first_bias, second, second_bias, z1, z2);            \
  }                                                                                                                  \
  static void Backward(const MlpWidths& widths, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first, \
                       const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& to) {                      \
    HWY_DYNAMIC_DISPATCH(Backward##NAME)(widths, rows, a, z1, gz2, first, second, gz1, scratch, ga, to);             \
  }
PERMAFROST_MLP(float, F32)
PERMAFROST_MLP(double, F64)
#undef PERMAFROST_MLP
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

template <class T>
int64_t MlpScratch(const MlpWidths& widths, int64_t rows) {
  if (IsBfloat16<T>(widths.products)) return 0;
  return full::PackedSize(T(), rows, 1);
}

#define PERMAFROST_MLP(T)                                                                                           \
  template int64_t PackedSize<T>(int64_t, int64_t, Products);                                                       \
  template void PackForward<T>(const T*, int64_t, int64_t, Products, T*);                                           \
  template void PackBackward<T>(const T*, int64_t, int64_t, Products, T*);                                          \
  template void MlpForward<T>(const MlpWidths&, int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*); \
  template void MlpBackward<T>(const MlpWidths&, int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*, \
                               T*, const MlpGradients<T>&);                                                         \
  template int64_t MlpScratch<T>(const MlpWidths&, int64_t);
PERMAFROST_MLP(float)
PERMAFROST_MLP(double)
#undef PERMAFROST_MLP

}  // namespace permafrost::nn
#endif
