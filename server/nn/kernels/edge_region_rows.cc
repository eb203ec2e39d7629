#include "nn/kernels/edge_region_rows.h"

#include <algorithm>

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/edge_region_rows.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

template <class T>
HWY_INLINE void CopyRow(const T* from, int64_t width, T* to) {
  ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR { hn::StoreU(hn::LoadU(d, from + c), d, to + c); });
}
template <class T>
HWY_INLINE void AddRow(const T* a, const T* b, int64_t width, T* to) {
  ForColumns<1, T>(width, [&](auto d, auto, int64_t c)
                              HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, a + c), hn::LoadU(d, b + c)), d, to + c); });
}

template <class T>
HWY_NOINLINE void Gather(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows,
                         T* to) {
  if (width == 1) {
    for (int64_t j = 0; j < rows; ++j) to[j] = from[index == nullptr ? places[j] : index[places[j]]];
    return;
  }
  const auto row = [&](int64_t j) { return from + (index == nullptr ? places[j] : index[places[j]]) * width; };
  for (int64_t j = 0; j < std::min(rows, kRowsAhead); ++j) AskForRow(row(j), width);
  for (int64_t j = 0; j < rows; ++j) {
    if (j + kRowsAhead < rows) AskForRow(row(j + kRowsAhead), width);
    CopyRow(row(j), width, to + j * width);
  }
}

template <class T>
HWY_NOINLINE void Scatter(const T* from, int64_t width, const int32_t* places, int64_t rows, T* to) {
  if (width == 1) {
    for (int64_t j = 0; j < rows; ++j) to[places[j]] = from[j];
    return;
  }
  for (int64_t j = 0; j < rows; ++j) CopyRow(from + j * width, width, to + places[j] * width);
}

template <class T>
HWY_NOINLINE void AddTo(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows,
                        T* to) {
  for (int64_t j = 0; j < rows; ++j) {
    T* const row = to + index[places[j]] * width;
    AddRow(row, from + j * width, width, row);
  }
}

// to = base + the sum of row(j) over j < rows.
template <int kVectors, class D, class T, class Row>
HWY_INLINE void SumColumnsOf(D d, int64_t rows, const Row& row, const T* base, T* to, int64_t c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    total[v] = base == nullptr ? hn::Zero(d) : hn::LoadU(d, base + c + v * lanes);
  }
  for (int64_t j = 0; j < rows; ++j) {
    const T* const from = row(j) + c;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[v] = hn::Add(total[v], hn::LoadU(d, from + v * lanes));
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, to + c + v * lanes);
}
template <class T, class Row>
HWY_INLINE void SumRowsOf(int64_t rows, int64_t width, const Row& row, const T* base, T* to) {
  ForColumns<8, T>(width, [&](auto d, auto vectors, int64_t c)
                              HWY_ATTR { SumColumnsOf<decltype(vectors)::value>(d, rows, row, base, to, c); });
}

template <class T>
HWY_NOINLINE void SumPlaces(const T* from, int64_t width, const int32_t* offsets, const int32_t* places, int64_t begin,
                            int64_t end, T* to) {
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* const of_row = places + offsets[r];
    for (int64_t p = offsets[r] + kRowsAhead; p < std::min<int64_t>(offsets[end], offsets[r + 1] + kRowsAhead); ++p) {
      AskForRow(from + places[p] * width, width);
    }
    SumRowsOf<T>(
        offsets[r + 1] - offsets[r], width, [&](int64_t j) { return from + of_row[j] * width; }, nullptr,
        to + r * width);
  }
}

template <class T>
HWY_NOINLINE void Expand(const RegionSegments& s, int64_t width, const T* targets, const T* base, T* edges) {
  int64_t e = 0;
  for (int64_t t = 0; t < s.targets; ++t) {
    for (const int64_t end = s.offsets[t + 1] - s.offsets[0]; e < end; ++e) {
      if (base == nullptr) {
        CopyRow(targets + t * width, width, edges + e * width);
      } else {
        AddRow(base + e * width, targets + t * width, width, edges + e * width);
      }
    }
  }
}

template <class T>
HWY_NOINLINE void Sum(const RegionSegments& s, int64_t width, const T* edges, const int64_t* rows, const T* base,
                      T* targets) {
  const int64_t all = s.offsets[s.targets] - s.offsets[0];
  for (int64_t t = 0; t < s.targets; ++t) {
    const int64_t first = s.offsets[t] - s.offsets[0], end = s.offsets[t + 1] - s.offsets[0];
    const T* const from = base == nullptr ? nullptr : base + t * width;
    T* const to = targets + t * width;
    if (rows == nullptr) {
      SumRowsOf(
          end - first, width, [&](int64_t j) { return edges + (first + j) * width; }, from, to);
      continue;
    }
    for (int64_t e = first + kRowsAhead; e < std::min(all, end + kRowsAhead); ++e) {
      AskForRow(edges + rows[e] * width, width);
    }
    SumRowsOf(
        end - first, width, [&](int64_t j) { return edges + rows[first + j] * width; }, from, to);
  }
}

template <bool kLargest, class T>
HWY_NOINLINE void Extreme(const RegionSegments& s, int64_t width, const T* edges, T* targets) {
  for (int64_t t = 0; t < s.targets; ++t) {
    const T* const first = edges + (s.offsets[t] - s.offsets[0]) * width;
    const int64_t rows = s.offsets[t + 1] - s.offsets[t];
    ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
      auto found = rows == 0 ? hn::Zero(d) : hn::LoadU(d, first + c);
      for (int64_t j = 1; j < rows; ++j) {
        const auto value = hn::LoadU(d, first + j * width + c);
        found = kLargest ? LargerOf(value, found) : SmallerOf(value, found);
      }
      hn::StoreU(found, d, targets + t * width + c);
    });
  }
}

template <class T>
HWY_NOINLINE void GradientOfExtreme(const RegionSegments& s, int64_t width, const T* edges, const T* extreme,
                                    const T* g, const T* base, T* to) {
  for (int64_t t = 0; t < s.targets; ++t) {
    const int64_t first = (s.offsets[t] - s.offsets[0]) * width, rows = s.offsets[t + 1] - s.offsets[t];
    if (rows == 0) continue;
    ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
      const auto one = hn::Set(d, T(1)), found = hn::LoadU(d, extreme + t * width + c);
      auto equal = hn::IfThenElseZero(hn::Eq(found, hn::Zero(d)), one);
      for (int64_t j = 0; j < rows; ++j) {
        const auto value = hn::LoadU(d, edges + first + j * width + c);
        equal = hn::Add(equal, hn::IfThenElseZero(hn::Eq(value, found), one));
      }
      const auto share = hn::Div(hn::LoadU(d, g + t * width + c), equal);
      for (int64_t j = 0; j < rows; ++j) {
        const int64_t at = first + j * width + c;
        // Multiplies instead of selecting. If the extreme is NaN, no edge equals it, and the share is g / 0. The
        // product of 0 and this share is NaN, as in PyTorch.
        const auto is_equal = hn::IfThenElseZero(hn::Eq(hn::LoadU(d, edges + at), found), one);
        const auto passed = hn::Mul(is_equal, share);
        hn::StoreU(base == nullptr ? passed : hn::Add(hn::LoadU(d, base + at), passed), d, to + at);
      }
    });
  }
}

template <class T>
HWY_NOINLINE void Repeat(const T* from, int64_t n, int64_t times, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    ForColumns<1, T>(times,
                     [&](auto d, auto, int64_t c) HWY_ATTR { hn::StoreU(hn::Set(d, from[i]), d, to + i * times + c); });
  }
}

template <class T>
HWY_NOINLINE void SumOfGroups(const T* from, int64_t n, int64_t group, const T* base, T* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; ++i) {
    const T* const values = from + i * group;
    T total = 0;
    int64_t j = 0;
    if (group >= lanes) {
      auto part = hn::Zero(d);
      for (; j + lanes <= group; j += lanes) part = hn::Add(part, hn::LoadU(d, values + j));
      total = hn::GetLane(hn::SumOfLanes(d, part));
    }
    for (; j < group; ++j) total += values[j];
    to[i] = base == nullptr ? total : base[i] + total;
  }
}

// A value is out of range if it, or the largest allowed value minus it, is negative. The loop collects both signs.
template <class T>
HWY_INLINE bool InRange(const T* values, int64_t count, T limit) {
  bool fits = true;
  const hn::ScalableTag<T> d;
  auto signs = hn::Zero(d);
  const auto most = hn::Set(d, static_cast<T>(limit - 1));
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, values + i);
    signs = hn::Or(signs, hn::Or(value, hn::Sub(most, value)));
  }
  for (; i < count; ++i) fits = fits && values[i] >= 0 && values[i] < limit;
  return fits && hn::AllFalse(d, hn::Lt(signs, hn::Zero(d)));
}
bool InRangeI32(const int32_t* values, int64_t count, int32_t limit) { return InRange(values, count, limit); }
bool InRangeI64(const int64_t* values, int64_t count, int64_t limit) { return InRange(values, count, limit); }

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_REGION_ROWS(T, NAME)                                                                              \
  void GatherRows##NAME(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows,     \
                        T* to) {                                                                                     \
    Gather(from, width, index, places, rows, to);                                                                    \
  }                                                                                                                  \
  void ScatterRows##NAME(const T* from, int64_t width, const int32_t* places, int64_t rows, T* to) {                 \
    Scatter(from, width, places, rows, to);                                                                          \
  }                                                                                                                  \
  void AddToTable##NAME(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows,     \
                        T* to) {                                                                                     \
    AddTo(from, width, index, places, rows, to);                                                                     \
  }                                                                                                                  \
  void SumOfPlaces##NAME(const T* from, int64_t width, const int32_t* offsets, const int32_t* places, int64_t begin, \
                         int64_t end, T* to) {                                                                       \
    SumPlaces(from, width, offsets, places, begin, end, to);                                                         \
  }                                                                                                                  \
  void ExpandTargets##NAME(const RegionSegments& s, int64_t width, const T* targets, const T* base, T* edges) {      \
    Expand(s, width, targets, base, edges);                                                                          \
  }                                                                                                                  \
  void SumEdges##NAME(const RegionSegments& s, int64_t width, const T* edges, const int64_t* rows, const T* base,    \
                      T* targets) {                                                                                  \
    Sum(s, width, edges, rows, base, targets);                                                                       \
  }                                                                                                                  \
  void ExtremeOfEdges##NAME(const RegionSegments& s, int64_t width, bool largest, const T* edges, T* targets) {      \
    largest ? Extreme<true>(s, width, edges, targets) : Extreme<false>(s, width, edges, targets);                    \
  }                                                                                                                  \
  void ExtremeGradient##NAME(const RegionSegments& s, int64_t width, const T* edges, const T* extreme, const T* g,   \
                             const T* base, T* to) {                                                                 \
    GradientOfExtreme(s, width, edges, extreme, g, base, to);                                                        \
  }                                                                                                                  \
  void RepeatValues##NAME(const T* from, int64_t n, int64_t times, T* to) { Repeat(from, n, times, to); }            \
  void SumGroups##NAME(const T* from, int64_t n, int64_t group, const T* base, T* to) {                              \
    SumOfGroups(from, n, group, base, to);                                                                           \
  }                                                                                                                  \
  void AddToRow##NAME(const T* from, int64_t rows, int64_t width, T* to) {                                           \
    SumRowsOf<T>(                                                                                                    \
        rows, width, [&](int64_t j) { return from + j * width; }, to, to);                                           \
  }
PERMAFROST_REGION_ROWS(float, F32)
PERMAFROST_REGION_ROWS(double, F64)
#undef PERMAFROST_REGION_ROWS

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

HWY_EXPORT(InRangeI32);
HWY_EXPORT(InRangeI64);
bool AreInRange(const int32_t* values, int64_t count, int32_t limit) {
  return HWY_DYNAMIC_DISPATCH(InRangeI32)(values, count, limit);
}
bool AreInRange(const int64_t* values, int64_t count, int64_t limit) {
  return HWY_DYNAMIC_DISPATCH(InRangeI64)(values, count, limit);
}

#define PERMAFROST_REGION_ROWS(T, NAME)                                                                                \
  HWY_EXPORT(GatherRows##NAME);                                                                                        \
  HWY_EXPORT(ScatterRows##NAME);                                                                                       \
  HWY_EXPORT(AddToTable##NAME);                                                                                        \
  HWY_EXPORT(SumOfPlaces##NAME);                                                                                       \
  HWY_EXPORT(ExpandTargets##NAME);                                                                                     \
  HWY_EXPORT(SumEdges##NAME);                                                                                          \
  HWY_EXPORT(ExtremeOfEdges##NAME);                                                                                    \
  HWY_EXPORT(ExtremeGradient##NAME);                                                                                   \
  HWY_EXPORT(RepeatValues##NAME);                                                                                      \
  HWY_EXPORT(SumGroups##NAME);                                                                                         \
  HWY_EXPORT(AddToRow##NAME);                                                                                          \
  template <>                                                                                                          \
  void GatherRows<T>(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows, T* to) { \
    HWY_DYNAMIC_DISPATCH(GatherRows##NAME)(from, width, index, places, rows, to);                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  void ScatterRows<T>(const T* from, int64_t width, const int32_t* places, int64_t rows, T* to) {                      \
    HWY_DYNAMIC_DISPATCH(ScatterRows##NAME)(from, width, places, rows, to);                                            \
  }                                                                                                                    \
  template <>                                                                                                          \
  void AddToTable<T>(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows, T* to) { \
    HWY_DYNAMIC_DISPATCH(AddToTable##NAME)(from, width, index, places, rows, to);                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  void SumOfPlaces<T>(const T* from, int64_t width, const int32_t* offsets, const int32_t* places, int64_t begin,      \
                      int64_t end, T* to) {                                                                            \
    HWY_DYNAMIC_DISPATCH(SumOfPlaces##NAME)(from, width, offsets, places, begin, end, to);                             \
  }                                                                                                                    \
  template <>                                                                                                          \
  void ExpandTargets<T>(const RegionSegments& s, int64_t width, const T* targets, const T* base, T* edges) {           \
    HWY_DYNAMIC_DISPATCH(ExpandTargets##NAME)(s, width, targets, base, edges);                                         \
  }                                                                                                                    \
  template <>                                                                                                          \
  void SumEdges<T>(const RegionSegments& s, int64_t width, const T* edges, const int64_t* rows, const T* base,         \
                   T* targets) {                                                                                       \
    HWY_DYNAMIC_DISPATCH(SumEdges##NAME)(s, width, edges, rows, base, targets);                                        \
  }                                                                                                                    \
  template <>                                                                                                          \
  void ExtremeOfEdges<T>(const RegionSegments& s, int64_t width, bool largest, const T* edges, T* targets) {           \
    HWY_DYNAMIC_DISPATCH(ExtremeOfEdges##NAME)(s, width, largest, edges, targets);                                     \
  }                                                                                                                    \
  template <>                                                                                                          \
  void ExtremeGradient<T>(const RegionSegments& s, int64_t width, const T* edges, const T* extreme, const T* g,        \
                          const T* base, T* to) {                                                                      \
    HWY_DYNAMIC_DISPATCH(ExtremeGradient##NAME)(s, width, edges, extreme, g, base, to);                                \
  }                                                                                                                    \
  template <>                                                                                                          \
  void RepeatValues<T>(const T* from, int64_t n, int64_t times, T* to) {                                               \
    HWY_DYNAMIC_DISPATCH(RepeatValues##NAME)(from, n, times, to);                                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  void SumGroups<T>(const T* from, int64_t n, int64_t group, const T* base, T* to) {                                   \
    HWY_DYNAMIC_DISPATCH(SumGroups##NAME)(from, n, group, base, to);                                                   \
  }                                                                                                                    \
  template <>                                                                                                          \
  void AddToRow<T>(const T* from, int64_t rows, int64_t width, T* to) {                                                \
    HWY_DYNAMIC_DISPATCH(AddToRow##NAME)(from, rows, width, to);                                                       \
  }
PERMAFROST_REGION_ROWS(float, F32)
PERMAFROST_REGION_ROWS(double, F64)
#undef PERMAFROST_REGION_ROWS

}  // namespace permafrost::nn
#endif
