#include "nn/kernels/linear.h"

#include "nn/kernels/bfloat16.h"
#include "nn/kernels/mlp.h"
#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/linear.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/columns-inl.h"
#include "nn/kernels/linear-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

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
        passed = hn::IfThenElseZero(hn::Gt(hn::LoadU(d, y + at), hn::Zero(d)), hn::Mul(passed, factor));
      }
      total = hn::Add(total, passed);
      hn::StoreU(passed, d, g + at);
    }
    hn::StoreU(total, d, sums + c);
  });
}

template <class T>
void Backward(int64_t rows, int64_t in, int64_t out, const T* a, const T* g, const T* packed, T* scratch, T* ga,
              T* gw) {
  Outer(rows, out, in, g, a, scratch, gw);
  if (packed == nullptr) return;
  Gemm(rows, in, out, g, out, 1, packed,
       [&](auto d, int64_t i, int64_t j, auto v) HWY_ATTR { hn::StoreU(v, d, ga + i * in + j); });
}

// Highway exports plain functions: one of each for each type.
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

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

// Products of unrounded factors.
namespace full {
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
      Bfloat16Outer(rows, w.out, w.in, g, a, gw);
      if (packed != nullptr) Bfloat16InputGradient(rows, w.in, w.out, g, packed, nullptr, ga);
      return;
    }
  }
  full::Backward(rows, w.in, w.out, a, g, packed, scratch, ga, gw);
}

template <class T>
int64_t LinearScratch(const LinearWidths& w, int64_t rows) {
  return IsBfloat16<T>(w.products) ? 0 : PackedSize<T>(rows, 1, w.products);
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
  template void LinearBackward<T>(const LinearWidths&, int64_t, const T*, const T*, const T*, T*, T*, T*);            \
  template int64_t LinearScratch<T>(const LinearWidths&, int64_t);
PERMAFROST_LINEAR(float, F32)
PERMAFROST_LINEAR(double, F64)
#undef PERMAFROST_LINEAR

}  // namespace permafrost::nn
#endif
