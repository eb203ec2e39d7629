#include "nn/kernels/gine.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/gine.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Columns [c, c + kVectors vectors) of one row.
template <int kVectors, bool kEdges, class D, class T>
HWY_INLINE void SumColumns(D d, const GineMessages<T>& m, const int64_t* source, int64_t begin, int64_t end,
                           const T* HWY_RESTRICT own, T* HWY_RESTRICT sum, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) total[v] = hn::LoadU(d, own + c + v * lanes);
  for (int64_t k = begin; k < end; ++k) {
    const T* const x = m.x + source[k] * m.width + c;
    if constexpr (!kEdges) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[v] = hn::Add(total[v], hn::LoadU(d, x + v * lanes));
      continue;
    }
    const T* const e = m.edges + (m.code == nullptr ? k : m.code[k]) * m.width + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto message = hn::Add(hn::LoadU(d, x + v * lanes), hn::LoadU(d, e + v * lanes));
      // Keeps NaN, as relu does.
      total[v] = hn::Add(total[v], hn::IfThenZeroElse(hn::Lt(message, hn::Zero(d)), message));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, sum + c + v * lanes);
}

template <int kVectors, bool kEdges, class D, class T>
HWY_INLINE void GradientColumns(D d, const GineMessages<T>& m, const int32_t* target, const int32_t* edge,
                                int64_t begin, int64_t end, const T* HWY_RESTRICT own, const T* HWY_RESTRICT g,
                                int64_t row, T* HWY_RESTRICT gx, T* HWY_RESTRICT ge, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> total[kVectors], x[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    total[v] = hn::LoadU(d, g + row * m.width + c + v * lanes);
    x[v] = hn::LoadU(d, own + c + v * lanes);
  }
  for (int64_t p = begin; p < end; ++p) {
    if constexpr (!kEdges) {
      const T* const from = g + target[p] * m.width + c;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[v] = hn::Add(total[v], hn::LoadU(d, from + v * lanes));
      continue;
    }
    const int64_t code = m.code == nullptr ? edge[p] : m.code[edge[p]];
    const T* const e = m.edges + code * m.width + c;
    const T* const from = g + target[p] * m.width + c;
    T* const to = ge + code * m.width + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto stopped = hn::Le(hn::Add(x[v], hn::LoadU(d, e + v * lanes)), hn::Zero(d));
      const auto passed = hn::IfThenZeroElse(stopped, hn::LoadU(d, from + v * lanes));
      total[v] = hn::Add(total[v], passed);
      hn::StoreU(m.code == nullptr ? passed : hn::Add(hn::LoadU(d, to + v * lanes), passed), d, to + v * lanes);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, gx + c + v * lanes);
}

template <bool kEdges, class T>
void SumRows(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
             T* sum) {
  for (int64_t i = begin; i < end; ++i) {
    ForColumns<4, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      SumColumns<decltype(vectors)::value, kEdges>(d, m, source, offsets[i], offsets[i + 1], m.x + i * m.width,
                                                   sum + i * m.width, c);
    });
  }
}
template <class T>
void Sum(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end, T* sum) {
  (m.edges == nullptr ? SumRows<false, T> : SumRows<true, T>)(m, offsets, source, begin, end, sum);
}

template <bool kEdges, class T>
void GradientRows(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                  const T* g, int64_t begin, int64_t end, T* gx, T* ge) {
  for (int64_t j = begin; j < end; ++j) {
    ForColumns<4, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      GradientColumns<decltype(vectors)::value, kEdges>(d, m, target, edge, offsets[j], offsets[j + 1],
                                                        m.x + j * m.width, g, j, gx + j * m.width, ge, c);
    });
  }
}
template <class T>
void Gradient(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target, const int32_t* edge, const T* g,
              int64_t begin, int64_t end, T* gx, T* ge) {
  (m.edges == nullptr ? GradientRows<false, T> : GradientRows<true, T>)(m, offsets, target, edge, g, begin, end, gx,
                                                                        ge);
}

// Highway exports plain functions: one of each for each type.
#define PERMAFROST_GINE(T, NAME)                                                                                      \
  void Sum##NAME(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end, \
                 T* sum) {                                                                                            \
    Sum(m, offsets, source, begin, end, sum);                                                                         \
  }                                                                                                                   \
  void Gradient##NAME(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target, const int32_t* edge,   \
                      const T* g, int64_t begin, int64_t end, T* gx, T* ge) {                                         \
    Gradient(m, offsets, target, edge, g, begin, end, gx, ge);                                                        \
  }
PERMAFROST_GINE(float, F32)
PERMAFROST_GINE(double, F64)
#undef PERMAFROST_GINE

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_GINE(T, NAME)                                                                                 \
  HWY_EXPORT(Sum##NAME);                                                                                         \
  HWY_EXPORT(Gradient##NAME);                                                                                    \
  template <>                                                                                                    \
  void GineSum<T>(const GineMessages<T>& messages, const int32_t* offsets, const int64_t* source, int64_t begin, \
                  int64_t end, T* sum) {                                                                         \
    HWY_DYNAMIC_DISPATCH(Sum##NAME)(messages, offsets, source, begin, end, sum);                                 \
  }                                                                                                              \
  template <>                                                                                                    \
  void GineGradient<T>(const GineMessages<T>& messages, const int32_t* offsets, const int32_t* target,           \
                       const int32_t* edge, const T* g, int64_t begin, int64_t end, T* gx, T* ge) {              \
    HWY_DYNAMIC_DISPATCH(Gradient##NAME)(messages, offsets, target, edge, g, begin, end, gx, ge);                \
  }
PERMAFROST_GINE(float, F32)
PERMAFROST_GINE(double, F64)
#undef PERMAFROST_GINE

}  // namespace permafrost::nn
#endif
