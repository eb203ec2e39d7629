#include "nn/kernels/segments.h"

#include <algorithm>

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/segments.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Source rows lie anywhere: the one that many entries ahead is asked for early.
constexpr int64_t kAhead = 8;
constexpr int64_t kLine = 64;  // bytes

template <class T>
HWY_INLINE void AskFor(const T* row, int64_t width) {
  for (int64_t c = 0; c < width; c += kLine / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

template <int kVectors, class D, class T>
HWY_INLINE void SumColumns(D d, const SegmentRows<T>& m, int64_t r, T* HWY_RESTRICT to, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    total[v] = m.self == nullptr ? hn::Zero(d)
                                 : hn::Mul(hn::Set(d, m.self[r]), hn::LoadU(d, m.x + r * m.stride + c + v * lanes));
  }
  for (int64_t e = m.offsets[r]; e < m.offsets[r + 1]; ++e) {
    const T* const x = m.x + m.source[e] * m.stride + c;
    const auto weight = hn::Set(d, m.weights == nullptr ? T(1) : m.weights[e]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[v] = hn::MulAdd(weight, hn::LoadU(d, x + v * lanes), total[v]);
  }
  const auto scale = hn::Set(d, m.scale == nullptr ? T(1) : m.scale[r]);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(scale, total[v]), d, to + c + v * lanes);
}

template <class T>
void Sum(const SegmentRows<T>& m, int64_t begin, int64_t end, T* to, int64_t to_stride) {
  const int64_t entries = m.offsets[end];
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t e = m.offsets[r] + kAhead; e < std::min(entries, m.offsets[r + 1] + kAhead); ++e) {
      AskFor(m.x + m.source[e] * m.stride, m.width);
    }
    ForColumns<8, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      SumColumns<decltype(vectors)::value>(d, m, r, to + (r - begin) * to_stride, c);
    });
  }
}

template <int kVectors, class D, class T>
HWY_INLINE void GradientColumns(D d, const SegmentGradient<T>& m, int64_t s, T* HWY_RESTRICT to, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool is_target = s < m.targets;
  const auto scale_of = [&](int64_t r) { return m.scale == nullptr ? T(1) : m.scale[r]; };
  hn::Vec<D> total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = s * m.stride + c + v * lanes;
    total[v] = is_target && m.own != nullptr ? hn::LoadU(d, m.own + at) : hn::Zero(d);
    if (is_target && m.self != nullptr) {
      total[v] = hn::MulAdd(hn::Set(d, scale_of(s) * m.self[s]), hn::LoadU(d, m.g + at), total[v]);
    }
  }
  for (int64_t p = m.offsets[s]; p < m.offsets[s + 1] && m.rows[p] < m.targets; ++p) {
    const int64_t r = m.rows[p];
    const auto weight = hn::Set(d, (m.weights == nullptr ? T(1) : m.weights[m.edges[p]]) * scale_of(r));
    const T* const g = m.g + r * m.stride + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[v] = hn::MulAdd(weight, hn::LoadU(d, g + v * lanes), total[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, to + c + v * lanes);
}

template <class T>
void Gradient(const SegmentGradient<T>& m, int64_t begin, int64_t end, T* gx) {
  const int64_t places = m.offsets[end];
  for (int64_t s = begin; s < end; ++s) {
    for (int64_t p = m.offsets[s] + kAhead; p < std::min<int64_t>(places, m.offsets[s + 1] + kAhead); ++p) {
      if (m.rows[p] < m.targets) AskFor(m.g + m.rows[p] * m.stride, m.width);
    }
    ForColumns<8, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      GradientColumns<decltype(vectors)::value>(d, m, s, gx + s * m.width, c);
    });
  }
}

// Highway exports plain functions: one of each for each type.
#define PERMAFROST_SEGMENTS(T, NAME)                                                              \
  void Sum##NAME(const SegmentRows<T>& m, int64_t begin, int64_t end, T* to, int64_t to_stride) { \
    Sum(m, begin, end, to, to_stride);                                                            \
  }                                                                                               \
  void Gradient##NAME(const SegmentGradient<T>& m, int64_t begin, int64_t end, T* gx) { Gradient(m, begin, end, gx); }
PERMAFROST_SEGMENTS(float, F32)
PERMAFROST_SEGMENTS(double, F64)
#undef PERMAFROST_SEGMENTS

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_SEGMENTS(T, NAME)                                                                   \
  HWY_EXPORT(Sum##NAME);                                                                               \
  HWY_EXPORT(Gradient##NAME);                                                                          \
  template <>                                                                                          \
  void SumSegments<T>(const SegmentRows<T>& rows, int64_t begin, int64_t end, T* to, int64_t stride) { \
    HWY_DYNAMIC_DISPATCH(Sum##NAME)(rows, begin, end, to, stride);                                     \
  }                                                                                                    \
  template <>                                                                                          \
  void SumGradient<T>(const SegmentGradient<T>& gradient, int64_t begin, int64_t end, T* gx) {         \
    HWY_DYNAMIC_DISPATCH(Gradient##NAME)(gradient, begin, end, gx);                                    \
  }
PERMAFROST_SEGMENTS(float, F32)
PERMAFROST_SEGMENTS(double, F64)
#undef PERMAFROST_SEGMENTS

}  // namespace permafrost::nn
#endif
