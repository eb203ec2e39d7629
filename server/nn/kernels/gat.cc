#include "nn/kernels/gat.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/kernels/norm.h"
#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/gat.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// The values that one slot of a row reads, the place of its scores, and its dropout key.
template <class T>
struct GatSlot {
  const T *left, *right;
  const T* edge;  // null: there are none
  int64_t place, key;
};

// The dropout key of slot k is the key of its row * kSlotStride + k. So it does not depend on padding.
constexpr int64_t kSlotStride = 0x9e3779b1;

template <class T>
HWY_INLINE GatSlot<T> SlotOf(const GatRows<T>& m, int64_t r, int64_t edge, int64_t source) {
  const int64_t columns = m.heads * m.width, slot = edge < 0 ? 0 : edge - m.offsets[r] + 1;
  const int64_t key = m.row_keys == nullptr ? m.first_row + r : m.row_keys[r];
  const T* const of_edge = m.edges == nullptr ? nullptr
                           : edge < 0         ? m.self_edges + r * columns
                                              : m.edges + edge * columns;
  return {m.left + source * columns, m.right + r * columns, of_edge, m.offsets[r] + r + slot, key * kSlotStride + slot};
}

// Calls body(slot, edge) for the slots that take part in the row: first for the row itself (edge -1), then for its
// edges.
template <class T, class Body>
HWY_INLINE void ForSlots(const GatRows<T>& m, int64_t r, const Body& body) {
  const int64_t self = m.first_row + r;
  body(SlotOf(m, r, -1, self), int64_t{-1});
  for (int64_t e = m.offsets[r]; e < m.offsets[r + 1]; ++e) {
    if (m.sources[e] != self) body(SlotOf(m, r, e, m.sources[e]), e);
  }
}

// Returns the factor of a slot's alpha: 0 if it is dropped, else m.kept.
template <class T>
HWY_INLINE T Kept(const GatRows<T>& m, const GatSlot<T>& slot, int64_t head) {
  if (m.mask.threshold == 0) return T(1);
  const uint32_t row = DropoutMix(m.mask.key ^ static_cast<uint32_t>(slot.key));
  const uint32_t hash = DropoutMix(row ^ static_cast<uint32_t>(head) * kDropoutColumnStride);
  return hash < m.mask.threshold ? T(0) : m.kept;
}

template <class D, class T>
HWY_INLINE hn::Vec<D> Sum(D d, const GatSlot<T>& slot, int64_t c) {
  const auto z = hn::Add(hn::LoadU(d, slot.left + c), hn::LoadU(d, slot.right + c));
  return slot.edge == nullptr ? z : hn::Add(z, hn::LoadU(d, slot.edge + c));
}

// Returns the sum of body(tag, column) over a head's columns.
template <class T, class Body>
HWY_INLINE T SumOverColumns(int64_t first, int64_t width, const Body& body) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) sums = hn::Add(sums, body(d, first + c));
  T total = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; c < width; ++c) total += hn::GetLane(body(one, first + c));
  return total;
}

template <class T>
HWY_INLINE T Score(const GatRows<T>& m, const GatSlot<T>& slot, int64_t head) {
  return SumOverColumns<T>(head * m.width, m.width, [&](auto d, int64_t c) HWY_ATTR {
    const auto z = Sum(d, slot, c);
    const auto active = hn::IfThenElse(hn::Gt(z, hn::Zero(d)), z, hn::Mul(z, hn::Set(d, m.slope)));
    return hn::Mul(hn::LoadU(d, m.attention + c), active);
  });
}

// to[c] += factor * from[c] for a head's columns.
template <class T>
HWY_INLINE void AddColumns(const GatRows<T>& m, int64_t head, T factor, const T* from, T* to) {
  ForColumns<1, T>(m.width, [&](auto d, auto, int64_t column) HWY_ATTR {
    const int64_t c = head * m.width + column;
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, from + c), hn::LoadU(d, to + c)), d, to + c);
  });
}

// values[i] = exp(values[i]). -infinity gives 0, and NaN stays NaN.
template <class T>
HWY_INLINE void Exponentials(int64_t count, T* values) {
  ForColumns<1, T>(count, [&](auto d, auto, int64_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, values + i);
    hn::StoreU(hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x), d, values + i);
  });
}

template <class T>
void Forward(const GatRows<T>& m, int64_t begin, int64_t end, T* alpha, T* y) {
  constexpr T kNoPart = -std::numeric_limits<T>::infinity();
  const int64_t heads = m.heads, columns = heads * m.width;
  for (int64_t r = begin; r < end; ++r) {
    // alpha of this row: [slots, heads]. Edges that take no part end with alpha 0.
    const int64_t count = (m.offsets[r + 1] - m.offsets[r] + 1) * heads;
    T* const a = alpha + (m.offsets[r] + r) * heads;
    std::fill_n(a, count, kNoPart);
    ForSlots(m, r, [&](const GatSlot<T>& slot, int64_t) HWY_ATTR {
      for (int64_t h = 0; h < heads; ++h) alpha[slot.place * heads + h] = Score(m, slot, h);
    });
    for (int64_t h = 0; h < heads; ++h) {
      T largest = kNoPart;
      for (int64_t i = h; i < count; i += heads) largest = std::max(largest, a[i]);
      for (int64_t i = h; i < count; i += heads) a[i] -= largest;
    }
    Exponentials(count, a);
    for (int64_t h = 0; h < heads; ++h) {
      T total = 0;
      for (int64_t i = h; i < count; i += heads) total += a[i];
      for (int64_t i = h; i < count; i += heads) a[i] /= total;
    }
    T* const out = y + r * columns;
    std::fill_n(out, columns, T(0));
    ForSlots(m, r, [&](const GatSlot<T>& slot, int64_t) HWY_ATTR {
      for (int64_t h = 0; h < heads; ++h) {
        AddColumns(m, h, alpha[slot.place * heads + h] * Kept(m, slot, h), slot.left, out);
      }
    });
  }
}

// Calls use(tag, column, gradient of z, leaky_relu(z)) for one slot and head, vector by vector.
template <class T, class Use>
HWY_INLINE void ForZ(const GatRows<T>& m, const GatSlot<T>& slot, int64_t head, T score_gradient, const Use& use) {
  ForColumns<1, T>(m.width, [&](auto d, auto, int64_t column) HWY_ATTR {
    const int64_t c = head * m.width + column;
    const auto z = Sum(d, slot, c), slope = hn::Set(d, m.slope);
    const auto positive = hn::Gt(z, hn::Zero(d));
    const auto ds = hn::Set(d, score_gradient), a = hn::Mul(ds, hn::LoadU(d, m.attention + c));
    use(d, c, hn::IfThenElse(positive, a, hn::Mul(a, slope)),
        hn::Mul(ds, hn::IfThenElse(positive, z, hn::Mul(z, slope))));
  });
}

template <class T>
void TargetGradient(const GatRows<T>& m, const T* alpha, const T* g, int64_t begin, int64_t end,
                    const GatTargetGradients<T>& to) {
  const int64_t heads = m.heads, columns = heads * m.width;
  for (int64_t r = begin; r < end; ++r) {
    const T* const of_row = g + r * columns;
    T* const right = to.right + r * columns;
    std::fill_n(right, columns, T(0));
    const int64_t first = m.offsets[r] + r, slots = m.offsets[r + 1] - m.offsets[r] + 1;
    std::fill_n(to.scores + first * heads, slots * heads, T(0));
    if (to.edges != nullptr) std::fill_n(to.edges + m.offsets[r] * columns, (slots - 1) * columns, T(0));
    ForSlots(m, r, [&](const GatSlot<T>& slot, int64_t) HWY_ATTR {
      for (int64_t h = 0; h < heads; ++h) {
        const T dot = SumOverColumns<T>(h * m.width, m.width, [&](auto d, int64_t c) HWY_ATTR {
          return hn::Mul(hn::LoadU(d, of_row + c), hn::LoadU(d, slot.left + c));
        });
        to.scores[slot.place * heads + h] = dot * Kept(m, slot, h);
      }
    });
    const T* const a = alpha + first * heads;
    T* const scores = to.scores + first * heads;
    for (int64_t h = 0; h < heads; ++h) {
      T mean = 0;
      for (int64_t i = h; i < slots * heads; i += heads) mean += a[i] * scores[i];
      for (int64_t i = h; i < slots * heads; i += heads) scores[i] = a[i] * (scores[i] - mean);
    }
    ForSlots(m, r, [&](const GatSlot<T>& slot, int64_t e) HWY_ATTR {
      T* const of_edge = to.edges == nullptr ? nullptr : e < 0 ? to.self_edges + r * columns : to.edges + e * columns;
      for (int64_t h = 0; h < heads; ++h) {
        ForZ(m, slot, h, to.scores[slot.place * heads + h], [&](auto d, int64_t c, auto gz, auto active) HWY_ATTR {
          hn::StoreU(hn::Add(hn::LoadU(d, right + c), gz), d, right + c);
          hn::StoreU(hn::Add(hn::LoadU(d, to.attention + c), active), d, to.attention + c);
          if (of_edge != nullptr) hn::StoreU(gz, d, of_edge + c);
        });
      }
    });
  }
}

template <class T>
void SourceGradient(const GatRows<T>& m, const GatSources<T>& from, const T* alpha, const T* scores, const T* g,
                    int64_t begin, int64_t end, T* left) {
  const int64_t columns = m.heads * m.width;
  for (int64_t s = begin; s < end; ++s) {
    T* const out = left + s * columns;
    std::fill_n(out, columns, T(0));
    const auto add = [&](const GatSlot<T>& slot, int64_t r) HWY_ATTR {
      for (int64_t h = 0; h < m.heads; ++h) {
        const int64_t place = slot.place * m.heads + h;
        const T factor = alpha[place] * Kept(m, slot, h);
        const T* const of_row = g + r * columns;
        ForZ(m, slot, h, scores[place], [&](auto d, int64_t c, auto gz, auto) HWY_ATTR {
          const auto through_sum = hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, of_row + c), gz);
          hn::StoreU(hn::Add(hn::LoadU(d, out + c), through_sum), d, out + c);
        });
      }
    };
    if (s < from.targets) add(SlotOf(m, s, -1, s), s);
    for (int64_t p = from.offsets[s]; p < from.offsets[s + 1] && from.rows[p] < from.targets; ++p) {
      const int64_t r = from.rows[p];
      if (r != s) add(SlotOf(m, r, from.edges[p], s), r);
    }
  }
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_GAT(T, NAME)                                                                                    \
  void Forward##NAME(const GatRows<T>& rows, int64_t begin, int64_t end, T* alpha, T* y) {                         \
    Forward(rows, begin, end, alpha, y);                                                                           \
  }                                                                                                                \
  void TargetGradient##NAME(const GatRows<T>& rows, const T* alpha, const T* g, int64_t begin, int64_t end,        \
                            const GatTargetGradients<T>& to) {                                                     \
    TargetGradient(rows, alpha, g, begin, end, to);                                                                \
  }                                                                                                                \
  void SourceGradient##NAME(const GatRows<T>& rows, const GatSources<T>& sources, const T* alpha, const T* scores, \
                            const T* g, int64_t begin, int64_t end, T* left) {                                     \
    SourceGradient(rows, sources, alpha, scores, g, begin, end, left);                                             \
  }
PERMAFROST_GAT(float, F32)
PERMAFROST_GAT(double, F64)
#undef PERMAFROST_GAT

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_GAT(T, NAME)                                                                                    \
  HWY_EXPORT(Forward##NAME);                                                                                       \
  HWY_EXPORT(TargetGradient##NAME);                                                                                \
  HWY_EXPORT(SourceGradient##NAME);                                                                                \
  template <>                                                                                                      \
  void GatForward<T>(const GatRows<T>& rows, int64_t begin, int64_t end, T* alpha, T* y) {                         \
    HWY_DYNAMIC_DISPATCH(Forward##NAME)(rows, begin, end, alpha, y);                                               \
  }                                                                                                                \
  template <>                                                                                                      \
  void GatTargetGradient<T>(const GatRows<T>& rows, const T* alpha, const T* g, int64_t begin, int64_t end,        \
                            const GatTargetGradients<T>& to) {                                                     \
    HWY_DYNAMIC_DISPATCH(TargetGradient##NAME)(rows, alpha, g, begin, end, to);                                    \
  }                                                                                                                \
  template <>                                                                                                      \
  void GatSourceGradient<T>(const GatRows<T>& rows, const GatSources<T>& sources, const T* alpha, const T* scores, \
                            const T* g, int64_t begin, int64_t end, T* left) {                                     \
    HWY_DYNAMIC_DISPATCH(SourceGradient##NAME)(rows, sources, alpha, scores, g, begin, end, left);                 \
  }
PERMAFROST_GAT(float, F32)
PERMAFROST_GAT(double, F64)
#undef PERMAFROST_GAT

}  // namespace permafrost::nn
#endif
