#include "nn/kernels/segments.h"

#include <algorithm>

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/segments.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

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
    for (int64_t e = m.offsets[r] + kRowsAhead; e < std::min(entries, m.offsets[r + 1] + kRowsAhead); ++e) {
      AskForRow(m.x + m.source[e] * m.stride, m.width);
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
    for (int64_t p = m.offsets[s] + kRowsAhead; p < std::min<int64_t>(places, m.offsets[s + 1] + kRowsAhead); ++p) {
      if (m.rows[p] < m.targets) AskForRow(m.g + m.rows[p] * m.stride, m.width);
    }
    ForColumns<8, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      GradientColumns<decltype(vectors)::value>(d, m, s, gx + s * m.width, c);
    });
  }
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_SEGMENTS(T, NAME)                                                              \
  void Sum##NAME(const SegmentRows<T>& m, int64_t begin, int64_t end, T* to, int64_t to_stride) { \
    Sum(m, begin, end, to, to_stride);                                                            \
  }                                                                                               \
  void Gradient##NAME(const SegmentGradient<T>& m, int64_t begin, int64_t end, T* gx) { Gradient(m, begin, end, gx); }
PERMAFROST_SEGMENTS(float, F32)
PERMAFROST_SEGMENTS(double, F64)
#undef PERMAFROST_SEGMENTS

// The most vectors of columns that a loop handles at once. Each loop keeps one or two arrays of kMaxVectors vectors
// in registers.
constexpr int kMaxVectors = 4;

template <int kVectors, class D, class T>
HWY_INLINE void LargestColumns(D d, const MaxRows<T>& m, int64_t r, T* HWY_RESTRICT to, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> largest[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    largest[v] = m.offsets[r] == m.offsets[r + 1]
                     ? hn::Zero(d)
                     : hn::LoadU(d, m.x + m.source[m.offsets[r]] * m.width + c + v * lanes);
  }
  for (int64_t e = m.offsets[r] + 1; e < m.offsets[r + 1]; ++e) {
    const T* const x = m.x + m.source[e] * m.width + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      // Avoids hn::Max, which makes no promise about NaN that holds on every target.
      const auto value = hn::LoadU(d, x + v * lanes);
      largest[v] = hn::IfThenElse(hn::Gt(value, largest[v]), value, largest[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(largest[v], d, to + c + v * lanes);
}

template <class T>
void Largest(const MaxRows<T>& m, int64_t begin, int64_t end, T* largest) {
  for (int64_t r = begin; r < end; ++r) {
    ForColumns<kMaxVectors, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      LargestColumns<decltype(vectors)::value>(d, m, r, largest + r * m.width, c);
    });
  }
}

template <int kVectors, class D, class T>
HWY_INLINE void ShareColumns(D d, const MaxRows<T>& m, int64_t r, const T* largest, const T* g, T* HWY_RESTRICT to,
                             int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, T(1));
  hn::Vec<D> top[kVectors], equal[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    top[v] = hn::LoadU(d, largest + c + v * lanes);
    equal[v] = hn::Zero(d);
  }
  for (int64_t e = m.offsets[r]; e < m.offsets[r + 1]; ++e) {
    const T* const x = m.x + m.source[e] * m.width + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      equal[v] = hn::Add(equal[v], hn::IfThenElseZero(hn::Eq(hn::LoadU(d, x + v * lanes), top[v]), one));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const auto share = hn::Div(hn::LoadU(d, g + c + v * lanes), hn::Max(equal[v], one));
    hn::StoreU(hn::IfThenElseZero(hn::Gt(equal[v], hn::Zero(d)), share), d, to + c + v * lanes);
  }
}

template <class T>
void Shares(const MaxRows<T>& m, const T* largest, const T* g, int64_t begin, int64_t end, T* share) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t row = r * m.width;
    ForColumns<kMaxVectors, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      ShareColumns<decltype(vectors)::value>(d, m, r, largest + row, g + row, share + row, c);
    });
  }
}

template <int kVectors, class D, class T>
HWY_INLINE void LargestGradientColumns(D d, const MaxGradient<T>& m, int64_t s, T* HWY_RESTRICT to, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> own[kVectors], total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    own[v] = hn::LoadU(d, m.x + s * m.width + c + v * lanes);
    total[v] = hn::Zero(d);
  }
  for (int64_t p = m.offsets[s]; p < m.offsets[s + 1] && m.rows[p] < m.targets; ++p) {
    const int64_t at = m.rows[p] * m.width + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto is_largest = hn::Eq(own[v], hn::LoadU(d, m.largest + at + v * lanes));
      total[v] = hn::Add(total[v], hn::IfThenElseZero(is_largest, hn::LoadU(d, m.share + at + v * lanes)));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, to + c + v * lanes);
}

template <class T>
void LargestGradient(const MaxGradient<T>& m, int64_t begin, int64_t end, T* gx) {
  for (int64_t s = begin; s < end; ++s) {
    ForColumns<kMaxVectors, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      LargestGradientColumns<decltype(vectors)::value>(d, m, s, gx + s * m.width, c);
    });
  }
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_SEGMENT_MAX(T, NAME)                                                                                \
  void Largest##NAME(const MaxRows<T>& m, int64_t begin, int64_t end, T* largest) { Largest(m, begin, end, largest); } \
  void Shares##NAME(const MaxRows<T>& m, const T* largest, const T* g, int64_t begin, int64_t end, T* share) {         \
    Shares(m, largest, g, begin, end, share);                                                                          \
  }                                                                                                                    \
  void LargestGradient##NAME(const MaxGradient<T>& m, int64_t begin, int64_t end, T* gx) {                             \
    LargestGradient(m, begin, end, gx);                                                                                \
  }
PERMAFROST_SEGMENT_MAX(float, F32)
PERMAFROST_SEGMENT_MAX(double, F64)
#undef PERMAFROST_SEGMENT_MAX

// Computes columns [c, c + kVectors vectors) of one row.
template <int kVectors, bool kEdges, class D, class T>
HWY_INLINE void MessageColumns(D d, const GineMessages<T>& m, const int64_t* source, int64_t begin, int64_t end,
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
      // Keeps NaN, as ReLU does.
      total[v] = hn::Add(total[v], hn::IfThenZeroElse(hn::Lt(message, hn::Zero(d)), message));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, sum + c + v * lanes);
}

template <int kVectors, bool kEdges, class D, class T>
HWY_INLINE void MessageGradientColumns(D d, const GineMessages<T>& m, const int32_t* target, const int32_t* edge,
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
void MessageRows(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
                 T* sum) {
  for (int64_t i = begin; i < end; ++i) {
    ForColumns<4, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      MessageColumns<decltype(vectors)::value, kEdges>(d, m, source, offsets[i], offsets[i + 1], m.x + i * m.width,
                                                       sum + i * m.width, c);
    });
  }
}
template <class T>
void Messages(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
              T* sum) {
  (m.edges == nullptr ? MessageRows<false, T> : MessageRows<true, T>)(m, offsets, source, begin, end, sum);
}

template <bool kEdges, class T>
void MessageGradientRows(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                         const T* g, int64_t begin, int64_t end, T* gx, T* ge) {
  for (int64_t j = begin; j < end; ++j) {
    ForColumns<4, T>(m.width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      MessageGradientColumns<decltype(vectors)::value, kEdges>(d, m, target, edge, offsets[j], offsets[j + 1],
                                                               m.x + j * m.width, g, j, gx + j * m.width, ge, c);
    });
  }
}
template <class T>
void MessageGradient(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                     const T* g, int64_t begin, int64_t end, T* gx, T* ge) {
  (m.edges == nullptr ? MessageGradientRows<false, T> : MessageGradientRows<true, T>)(m, offsets, target, edge, g,
                                                                                      begin, end, gx, ge);
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_GINE(T, NAME)                                                                              \
  void Messages##NAME(const GineMessages<T>& m, const int32_t* offsets, const int64_t* source, int64_t begin, \
                      int64_t end, T* sum) {                                                                  \
    Messages(m, offsets, source, begin, end, sum);                                                            \
  }                                                                                                           \
  void MessageGradient##NAME(const GineMessages<T>& m, const int32_t* offsets, const int32_t* target,         \
                             const int32_t* edge, const T* g, int64_t begin, int64_t end, T* gx, T* ge) {     \
    MessageGradient(m, offsets, target, edge, g, begin, end, gx, ge);                                         \
  }
PERMAFROST_GINE(float, F32)
PERMAFROST_GINE(double, F64)
#undef PERMAFROST_GINE

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

#define PERMAFROST_SEGMENT_MAX(T, NAME)                                                                     \
  HWY_EXPORT(Largest##NAME);                                                                                \
  HWY_EXPORT(Shares##NAME);                                                                                 \
  HWY_EXPORT(LargestGradient##NAME);                                                                        \
  template <>                                                                                               \
  void LargestOfSegments<T>(const MaxRows<T>& rows, int64_t begin, int64_t end, T* largest) {               \
    HWY_DYNAMIC_DISPATCH(Largest##NAME)(rows, begin, end, largest);                                         \
  }                                                                                                         \
  template <>                                                                                               \
  void SharesOfLargest<T>(const MaxRows<T>& rows, const T* largest, const T* g, int64_t begin, int64_t end, \
                          T* share) {                                                                       \
    HWY_DYNAMIC_DISPATCH(Shares##NAME)(rows, largest, g, begin, end, share);                                \
  }                                                                                                         \
  template <>                                                                                               \
  void GradientOfLargest<T>(const MaxGradient<T>& gradient, int64_t begin, int64_t end, T* gx) {            \
    HWY_DYNAMIC_DISPATCH(LargestGradient##NAME)(gradient, begin, end, gx);                                  \
  }
PERMAFROST_SEGMENT_MAX(float, F32)
PERMAFROST_SEGMENT_MAX(double, F64)
#undef PERMAFROST_SEGMENT_MAX

#define PERMAFROST_GINE(T, NAME)                                                                                 \
  HWY_EXPORT(Messages##NAME);                                                                                    \
  HWY_EXPORT(MessageGradient##NAME);                                                                             \
  template <>                                                                                                    \
  void GineSum<T>(const GineMessages<T>& messages, const int32_t* offsets, const int64_t* source, int64_t begin, \
                  int64_t end, T* sum) {                                                                         \
    HWY_DYNAMIC_DISPATCH(Messages##NAME)(messages, offsets, source, begin, end, sum);                            \
  }                                                                                                              \
  template <>                                                                                                    \
  void GineGradient<T>(const GineMessages<T>& messages, const int32_t* offsets, const int32_t* target,           \
                       const int32_t* edge, const T* g, int64_t begin, int64_t end, T* gx, T* ge) {              \
    HWY_DYNAMIC_DISPATCH(MessageGradient##NAME)(messages, offsets, target, edge, g, begin, end, gx, ge);         \
  }
PERMAFROST_GINE(float, F32)
PERMAFROST_GINE(double, F64)
#undef PERMAFROST_GINE

}  // namespace permafrost::nn
#endif
