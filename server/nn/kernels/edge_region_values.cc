#include "nn/kernels/edge_region_rows.h"

#include <cmath>
#include <utility>

#include "nn/kernels/edge_region_plan.h"
#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/edge_region_values.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

template <class T>
HWY_INLINE void AskAhead(const RegionRows<T>& from, int64_t j, int64_t rows, int64_t width) {
  if (from.rows == nullptr || j + kRowsAhead >= rows) return;
  AskForRow(from.base + from.rows[j + kRowsAhead] * from.stride, width);
}
template <class T>
HWY_INLINE const T* RowOf(const RegionRows<T>& from, int64_t j) {
  return from.base + (from.rows == nullptr ? j : from.rows[j]) * from.stride;
}

// The number and the width of the rows that a step writes.
struct Extent {
  int64_t rows, width;
};

template <class T, class F, class... Pointers>
HWY_INLINE void EachInRow(int64_t width, T* out, const F& f, Pointers... from) {
  ForColumns<1, T>(width,
                   [&](auto d, auto, int64_t c) HWY_ATTR { hn::StoreU(f(d, hn::LoadU(d, from + c)...), d, out + c); });
}
// out[j][c] = f(tag, from[j][c]...), by vectors.
template <class T, class F, class... Operands>
HWY_INLINE void Each(const Extent& n, T* out, const F& f, const Operands&... from) {
  for (int64_t j = 0; j < n.rows; ++j) {
    (AskAhead(from, j, n.rows, n.width), ...);
    EachInRow(n.width, out + j * n.width, f, RowOf(from, j)...);
  }
}
template <class T, class F>
HWY_INLINE void EachOf(const RegionRows<T>& a, const Extent& n, T* out, const F& f) {
  Each(n, out, f, a);
}
template <class T, class F>
HWY_INLINE void EachOf(const RegionRows<T>& a, const RegionRows<T>& b, const Extent& n, T* out, const F& f) {
  Each(n, out, f, a, b);
}

// out[j][c] = wide[j][c] * narrow[j][c / narrow.repeat].
template <class T>
HWY_NOINLINE void TimesNarrow(const RegionRows<T>& wide, const RegionRows<T>& narrow, const Extent& n, T* out) {
  for (int64_t j = 0; j < n.rows; ++j) {
    AskAhead(wide, j, n.rows, n.width);
    const T *const row = RowOf(wide, j), *const by = RowOf(narrow, j);
    for (int64_t h = 0; h * narrow.repeat < n.width; ++h) {
      const int64_t first = h * narrow.repeat;
      ForColumns<1, T>(narrow.repeat, [&](auto d, auto, int64_t c) HWY_ATTR {
        hn::StoreU(hn::Mul(hn::LoadU(d, row + first + c), hn::Set(d, by[h])), d, out + j * n.width + first + c);
      });
    }
  }
}
template <class T>
HWY_INLINE void Times(const RegionRows<T>& a, const RegionRows<T>& b, const Extent& n, T* out) {
  if (b.repeat > 1) return TimesNarrow(a, b, n, out);
  if (a.repeat > 1) return TimesNarrow(b, a, n, out);
  EachOf(a, b, n, out, [](auto, auto v, auto w) HWY_ATTR { return hn::Mul(v, w); });
}

template <class T>
HWY_NOINLINE void PowerOf(const RegionRows<T>& a, double x, const Extent& n, T* out) {
  if (x == 1) return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return v; });
  if (x == 2) return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); });
  if (x == 3) return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Mul(hn::Mul(v, v), v); });
  if (x == 0.5) return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Sqrt(v); });
  if (x == -0.5) {
    return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return hn::Div(hn::Set(d, T(1)), hn::Sqrt(v)); });
  }
  if (x == -1) return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return hn::Div(hn::Set(d, T(1)), v); });
  if (x == -2) {
    return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return hn::Div(hn::Set(d, T(1)), hn::Mul(v, v)); });
  }
  for (int64_t j = 0; j < n.rows; ++j) {
    const T* const from = RowOf(a, j);
    for (int64_t c = 0; c < n.width; ++c) out[j * n.width + c] = std::pow(from[c], static_cast<T>(x));
  }
}

// Writes 1 where holds(a, x), else 0.
template <class T, class F>
HWY_INLINE void MaskOf(const RegionRows<T>& a, T x, const Extent& n, T* out, const F& holds) {
  EachOf(a, n, out,
         [&](auto d, auto v) HWY_ATTR { return hn::IfThenElseZero(holds(v, hn::Set(d, x)), hn::Set(d, T(1))); });
}

template <class T>
HWY_NOINLINE void Unary(const RegionStep& s, const RegionRows<T>& a, const Extent& n, T* out) {
  const T x = static_cast<T>(s.x), shift = static_cast<T>(s.y);
  switch (s.op) {
    case RegionOp::kNeg:
      return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Neg(v); });
    case RegionOp::kAbs:
      return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Abs(v); });
    case RegionOp::kExp:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return ExpOf(d, v); });
    case RegionOp::kLog:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return LogOf(d, v); });
    case RegionOp::kSqrt:
      return EachOf(a, n, out, [](auto, auto v) HWY_ATTR { return hn::Sqrt(v); });
    case RegionOp::kRsqrt:
      return PowerOf(a, -0.5, n, out);
    case RegionOp::kReciprocal:
      return PowerOf(a, -1, n, out);
    case RegionOp::kSigmoid:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return SigmoidOf(d, v); });
    case RegionOp::kTanh:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return TanhOf(d, v); });
    case RegionOp::kRelu:
      return EachOf(a, n, out,
                    [](auto d, auto v) HWY_ATTR { return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Zero(d), v); });
    case RegionOp::kLeakyRelu:
      return EachOf(a, n, out, [=](auto d, auto v) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), v, hn::Mul(v, hn::Set(d, x)));
      });
    case RegionOp::kElu:
      return EachOf(a, n, out, [=](auto d, auto v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Mul(hn::Set(d, x), Expm1Of(d, v)), v);
      });
    case RegionOp::kSilu:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR {
        return hn::Div(v, hn::Add(hn::Set(d, T(1)), ExpOf(d, hn::Neg(v))));
      });
    case RegionOp::kSoftplus:
      return EachOf(a, n, out, [](auto d, auto v) HWY_ATTR { return SoftplusOf(d, v); });
    case RegionOp::kClampMin:
      return EachOf(a, n, out, [=](auto d, auto v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, hn::Set(d, x)), hn::Set(d, x), v);
      });
    case RegionOp::kClampMax:
      return EachOf(a, n, out, [=](auto d, auto v) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Set(d, x)), hn::Set(d, x), v);
      });
    case RegionOp::kPower:
      if (s.x == 0) return EachOf(a, n, out, [](auto d, auto) HWY_ATTR { return hn::Set(d, T(1)); });
      return PowerOf(a, s.x, n, out);
    case RegionOp::kScale:
      return EachOf(a, n, out,
                    [=](auto d, auto v) HWY_ATTR { return hn::MulAdd(v, hn::Set(d, x), hn::Set(d, shift)); });
    case RegionOp::kLess:
      return MaskOf(a, x, n, out, [](auto v, auto w) HWY_ATTR { return hn::Lt(v, w); });
    case RegionOp::kLessEqual:
      return MaskOf(a, x, n, out, [](auto v, auto w) HWY_ATTR { return hn::Le(v, w); });
    case RegionOp::kGreater:
      return MaskOf(a, x, n, out, [](auto v, auto w) HWY_ATTR { return hn::Gt(v, w); });
    case RegionOp::kGreaterEqual:
      return MaskOf(a, x, n, out, [](auto v, auto w) HWY_ATTR { return hn::Ge(v, w); });
    case RegionOp::kEqual:
      return MaskOf(a, x, n, out, [](auto v, auto w) HWY_ATTR { return hn::Eq(v, w); });
    case RegionOp::kNotEqual:
      // On some targets hn::Ne is false for NaN.
      return EachOf(a, n, out, [=](auto d, auto v) HWY_ATTR {
        return hn::IfThenZeroElse(hn::Eq(v, hn::Set(d, x)), hn::Set(d, T(1)));
      });
    default:
      return;
  }
}

template <class T>
HWY_NOINLINE void Compute(const RegionStep& s, const RegionValues<T>& in, const Extent& n, T* out) {
  const T x = static_cast<T>(s.x);
  switch (s.op) {
    case RegionOp::kAdd:
      if (x == T(1)) return EachOf(in.a, in.b, n, out, [](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
      return EachOf(in.a, in.b, n, out,
                    [=](auto d, auto a, auto b) HWY_ATTR { return hn::MulAdd(b, hn::Set(d, x), a); });
    case RegionOp::kSub:
      if (x == T(1)) return EachOf(in.a, in.b, n, out, [](auto, auto a, auto b) HWY_ATTR { return hn::Sub(a, b); });
      return EachOf(in.a, in.b, n, out,
                    [=](auto d, auto a, auto b) HWY_ATTR { return hn::NegMulAdd(b, hn::Set(d, x), a); });
    case RegionOp::kMul:
      return Times(in.a, in.b, n, out);
    case RegionOp::kDiv:
      return EachOf(in.a, in.b, n, out, [](auto, auto a, auto b) HWY_ATTR { return hn::Div(a, b); });
    case RegionOp::kMaximum:
      return EachOf(in.a, in.b, n, out, [](auto, auto a, auto b) HWY_ATTR { return LargerOf(a, b); });
    case RegionOp::kMinimum:
      return EachOf(in.a, in.b, n, out, [](auto, auto a, auto b) HWY_ATTR { return SmallerOf(a, b); });
    case RegionOp::kWhere:
      return Each(
          n, out, [](auto d, auto a, auto b, auto c) HWY_ATTR { return hn::IfThenElse(hn::Eq(c, hn::Zero(d)), b, a); },
          in.a, in.b, in.c);
    default:
      return Unary(s, in.a, n, out);
  }
}

// Adds up the values of rows [begin, end) for columns [first, first + width). In these columns a narrow operand b has
// one value per row. Operand a is as wide as the step.
template <bool kMul, SumOf kWhat, bool kNarrow, class T>
HWY_INLINE void SumColumns(const RegionValues<T>& in, T by, int64_t begin, int64_t end, int64_t first, int64_t width,
                           T* to) {
  ForColumns<8, T>(width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto zero = hn::Zero(d), x = hn::Set(d, by);
    hn::Vec<decltype(d)> total[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[v] = zero;
    for (int64_t j = begin; j < end; ++j) {
      const T* const a = RowOf(in.a, j) + first + c;
      const T* const b = kNarrow ? RowOf(in.b, j) + first / in.b.repeat : RowOf(in.b, j) + first + c;
      const T* const passed = kWhat == SumOf::kPassed ? RowOf(in.c, j) + first + c : nullptr;
      const auto narrow = hn::Set(d, *b);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto p = hn::LoadU(d, a + v * lanes);
        const auto q = kNarrow ? narrow : hn::LoadU(d, b + v * lanes);
        auto value = kMul ? hn::Mul(p, q) : hn::MulAdd(q, x, p);
        if constexpr (kWhat == SumOf::kRelu) value = hn::IfThenElse(hn::Lt(value, zero), zero, value);
        if constexpr (kWhat == SumOf::kPassed) {
          value = hn::IfThenZeroElse(hn::Le(value, zero), hn::LoadU(d, passed + v * lanes));
        }
        total[v] = hn::Add(total[v], value);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, to + first + c + v * lanes);
  });
}

template <bool kMul, SumOf kWhat, bool kNarrow, class T>
HWY_NOINLINE void SumComputed(const RegionSegments& s, int64_t width, const RegionValues<T>& in, T x, T* targets) {
  const int64_t all = s.offsets[s.targets] - s.offsets[0], part = kNarrow ? in.b.repeat : width;
  for (int64_t t = 0; t < s.targets; ++t) {
    const int64_t begin = s.offsets[t] - s.offsets[0], end = s.offsets[t + 1] - s.offsets[0];
    for (int64_t j = begin; j < end; ++j) {
      AskAhead(in.a, j, all, width);
      if (!kNarrow) AskAhead(in.b, j, all, width);
      if (kWhat == SumOf::kPassed) AskAhead(in.c, j, all, width);
    }
    for (int64_t first = 0; first < width; first += part) {
      SumColumns<kMul, kWhat, kNarrow>(in, x, begin, end, first, part, targets + t * width);
    }
  }
}

template <SumOf kWhat, class T>
HWY_INLINE void SumOfStep(const RegionSegments& segments, const RegionStep& s, RegionValues<T> in, T* targets) {
  const T x = static_cast<T>(s.x);
  if (s.op == RegionOp::kAdd) return SumComputed<false, kWhat, false>(segments, s.width, in, x, targets);
  if constexpr (kWhat != SumOf::kPassed) {
    if (in.a.repeat > 1) std::swap(in.a, in.b);
    if (in.b.repeat > 1) return SumComputed<true, kWhat, true>(segments, s.width, in, x, targets);
    SumComputed<true, kWhat, false>(segments, s.width, in, x, targets);
  }
}

template <class T>
HWY_NOINLINE void SumEach(const RegionSegments& segments, const RegionStep& s, SumOf what, const RegionValues<T>& in,
                          T* targets) {
  switch (what) {
    case SumOf::kValue:
      return SumOfStep<SumOf::kValue>(segments, s, in, targets);
    case SumOf::kRelu:
      return SumOfStep<SumOf::kRelu>(segments, s, in, targets);
    case SumOf::kPassed:
      return SumOfStep<SumOf::kPassed>(segments, s, in, targets);
  }
}

// Computes gradients that depend on the step's own values.
template <class T>
HWY_NOINLINE void GradientOfValues(const RegionStep& s, const RegionRows<T>& y, const RegionRows<T>& g, const Extent& n,
                                   T* to) {
  switch (s.op) {
    case RegionOp::kExp:
      return EachOf(y, g, n, to, [](auto, auto v, auto w) HWY_ATTR { return hn::Mul(w, v); });
    case RegionOp::kSqrt:
      return EachOf(y, g, n, to, [](auto, auto v, auto w) HWY_ATTR { return hn::Div(w, hn::Add(v, v)); });
    case RegionOp::kRsqrt:
      return EachOf(y, g, n, to, [](auto d, auto v, auto w) HWY_ATTR {
        return hn::Mul(hn::Mul(hn::Set(d, T(-0.5)), w), hn::Mul(hn::Mul(v, v), v));
      });
    case RegionOp::kReciprocal:
      return EachOf(y, g, n, to, [](auto, auto v, auto w) HWY_ATTR { return hn::Mul(hn::Neg(w), hn::Mul(v, v)); });
    case RegionOp::kSigmoid:
      return EachOf(y, g, n, to, [](auto d, auto v, auto w) HWY_ATTR {
        return hn::Mul(hn::Mul(w, hn::Sub(hn::Set(d, T(1)), v)), v);
      });
    case RegionOp::kTanh:
      return EachOf(y, g, n, to,
                    [](auto d, auto v, auto w) HWY_ATTR { return hn::Mul(w, hn::NegMulAdd(v, v, hn::Set(d, T(1)))); });
    default:  // kRelu
      return EachOf(y, g, n, to,
                    [](auto d, auto v, auto w) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), w); });
  }
}

// Computes gradients that depend on the operand's values.
template <class T>
HWY_NOINLINE void GradientOfOperand(const RegionStep& s, const RegionRows<T>& a, const RegionRows<T>& g,
                                    const Extent& n, T* to) {
  const T x = static_cast<T>(s.x);
  switch (s.op) {
    case RegionOp::kAbs:
      return EachOf(a, g, n, to, [](auto d, auto v, auto w) HWY_ATTR {
        const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
        const auto up = hn::IfThenElseZero(hn::Gt(v, zero), one), down = hn::IfThenElseZero(hn::Lt(v, zero), one);
        return hn::Mul(w, hn::Sub(up, down));
      });
    case RegionOp::kLog:
      return EachOf(a, g, n, to, [](auto, auto v, auto w) HWY_ATTR { return hn::Div(w, v); });
    case RegionOp::kLeakyRelu:
      return EachOf(a, g, n, to, [=](auto d, auto v, auto w) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), w, hn::Mul(w, hn::Set(d, x)));
      });
    case RegionOp::kElu:
      return EachOf(a, g, n, to, [=](auto d, auto v, auto w) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), w, hn::Mul(hn::Mul(w, hn::Set(d, x)), ExpOf(d, v)));
      });
    case RegionOp::kSilu:
      return EachOf(a, g, n, to, [](auto d, auto v, auto w) HWY_ATTR {
        const auto one = hn::Set(d, T(1)), sigmoid = SigmoidOf(d, v);
        return hn::Mul(hn::Mul(w, sigmoid), hn::MulAdd(v, hn::Sub(one, sigmoid), one));
      });
    case RegionOp::kSoftplus:
      return EachOf(a, g, n, to, [](auto d, auto v, auto w) HWY_ATTR {
        const auto z = ExpOf(d, v);
        const auto passed = hn::Div(hn::Mul(w, z), hn::Add(z, hn::Set(d, T(1))));
        return hn::IfThenElse(hn::Gt(v, hn::Set(d, T(20))), w, passed);
      });
    case RegionOp::kClampMin:
      return EachOf(a, g, n, to,
                    [=](auto d, auto v, auto w) HWY_ATTR { return hn::IfThenElseZero(hn::Ge(v, hn::Set(d, x)), w); });
    case RegionOp::kClampMax:
      return EachOf(a, g, n, to,
                    [=](auto d, auto v, auto w) HWY_ATTR { return hn::IfThenElseZero(hn::Le(v, hn::Set(d, x)), w); });
    default:  // kPower
      if (s.x == 0) return EachOf(g, n, to, [](auto d, auto) HWY_ATTR { return hn::Zero(d); });
      if (s.x == 1) return EachOf(g, n, to, [](auto, auto w) HWY_ATTR { return w; });
      PowerOf(a, s.x - 1, n, to);
      return EachOf(RegionRows<T>{to, nullptr, n.width, 1}, g, n, to,
                    [=](auto d, auto v, auto w) HWY_ATTR { return hn::Mul(w, hn::Mul(hn::Set(d, x), v)); });
  }
}

template <class T>
HWY_NOINLINE void Gradient(const RegionStep& s, int k, const RegionValues<T>& in, const RegionRows<T>& y,
                           const RegionRows<T>& g, const Extent& n, T* to) {
  const auto scaled = [&](T by) HWY_ATTR {
    EachOf(g, n, to, [=](auto d, auto w) HWY_ATTR { return hn::Mul(w, hn::Set(d, by)); });
  };
  switch (s.op) {
    case RegionOp::kNeg:
      return EachOf(g, n, to, [](auto, auto w) HWY_ATTR { return hn::Neg(w); });
    case RegionOp::kScale:
      return scaled(static_cast<T>(s.x));
    case RegionOp::kAdd:
      return scaled(k == 0 ? T(1) : static_cast<T>(s.x));
    case RegionOp::kSub:
      return scaled(k == 0 ? T(1) : static_cast<T>(-s.x));
    case RegionOp::kMul:
      return Times(k == 0 ? in.b : in.a, g, n, to);
    case RegionOp::kDiv:
      if (k == 0) return EachOf(in.b, g, n, to, [](auto, auto v, auto w) HWY_ATTR { return hn::Div(w, v); });
      return Each(
          n, to, [](auto, auto a, auto b, auto w) HWY_ATTR { return hn::Mul(hn::Neg(w), hn::Div(hn::Div(a, b), b)); },
          in.a, in.b, g);
    case RegionOp::kMaximum:
    case RegionOp::kMinimum: {
      // The operand that was not selected gets gradient 0. Two equal operands get half of the gradient each. If
      // either operand is NaN, both get the whole gradient.
      const bool lost_if_less = (s.op == RegionOp::kMaximum) == (k == 0);
      return Each(
          n, to,
          [](auto d, auto p, auto q, auto w) HWY_ATTR {
            const auto passed = hn::IfThenElse(hn::Eq(p, q), hn::Mul(w, hn::Set(d, T(0.5))), w);
            return hn::IfThenZeroElse(hn::Lt(p, q), passed);
          },
          lost_if_less ? in.a : in.b, lost_if_less ? in.b : in.a, g);
    }
    case RegionOp::kWhere:
      return EachOf(in.c, g, n, to, [=](auto d, auto c, auto w) HWY_ATTR {
        const auto fails = hn::Eq(c, hn::Zero(d));
        return k == 0 ? hn::IfThenZeroElse(fails, w) : hn::IfThenElseZero(fails, w);
      });
    default:
      if (ReadsOf(s.op, k).own) return GradientOfValues(s, y, g, n, to);
      return GradientOfOperand(s, in.a, g, n, to);
  }
}

// Returns the extent of the rows: one long row if the rows of all operands are contiguous.
template <class T>
Extent ExtentOf(const RegionStep& s, const RegionValues<T>& in, const RegionRows<T>& g, int64_t rows) {
  const auto follows = [&](const RegionRows<T>& r) {
    return r.base == nullptr || (r.rows == nullptr && r.stride == s.width && r.repeat == 1);
  };
  const bool flat = follows(in.a) && follows(in.b) && follows(in.c) && follows(g);
  return flat ? Extent{rows > 0, rows * s.width} : Extent{rows, s.width};
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_REGION_VALUES(T, NAME)                                                                             \
  void ComputeValues##NAME(const RegionStep& step, const RegionValues<T>& in, int64_t rows, T* out) {                 \
    Compute(step, in, ExtentOf(step, in, RegionRows<T>(), rows), out);                                                \
  }                                                                                                                   \
  void ValueGradient##NAME(const RegionStep& step, int k, const RegionValues<T>& in, const T* y,                      \
                           const RegionRows<T>& g, int64_t rows, T* to) {                                             \
    Gradient(step, k, in, RegionRows<T>{y, nullptr, step.width, 1}, g, ExtentOf(step, in, g, rows), to);              \
  }                                                                                                                   \
  void SumValues##NAME(const RegionSegments& segments, const RegionStep& step, SumOf what, const RegionValues<T>& in, \
                       T* targets) {                                                                                  \
    SumEach(segments, step, what, in, targets);                                                                       \
  }                                                                                                                   \
  void AddValues##NAME(const T* a, const T* b, int64_t n, T* out) {                                                   \
    EachInRow(                                                                                                        \
        n, out, [](auto, auto v, auto w) HWY_ATTR { return hn::Add(v, w); }, a, b);                                   \
  }
PERMAFROST_REGION_VALUES(float, F32)
PERMAFROST_REGION_VALUES(double, F64)
#undef PERMAFROST_REGION_VALUES

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_REGION_VALUES(T, NAME)                                                                             \
  HWY_EXPORT(ComputeValues##NAME);                                                                                    \
  HWY_EXPORT(ValueGradient##NAME);                                                                                    \
  HWY_EXPORT(SumValues##NAME);                                                                                        \
  HWY_EXPORT(AddValues##NAME);                                                                                        \
  template <>                                                                                                         \
  void ComputeValues<T>(const RegionStep& step, const RegionValues<T>& in, int64_t rows, T* out) {                    \
    HWY_DYNAMIC_DISPATCH(ComputeValues##NAME)(step, in, rows, out);                                                   \
  }                                                                                                                   \
  template <>                                                                                                         \
  void ValueGradient<T>(const RegionStep& step, int k, const RegionValues<T>& in, const T* y, const RegionRows<T>& g, \
                        int64_t rows, T* to) {                                                                        \
    HWY_DYNAMIC_DISPATCH(ValueGradient##NAME)(step, k, in, y, g, rows, to);                                           \
  }                                                                                                                   \
  template <>                                                                                                         \
  void SumValues<T>(const RegionSegments& segments, const RegionStep& step, SumOf what, const RegionValues<T>& in,    \
                    T* targets) {                                                                                     \
    HWY_DYNAMIC_DISPATCH(SumValues##NAME)(segments, step, what, in, targets);                                         \
  }                                                                                                                   \
  template <>                                                                                                         \
  void AddValues<T>(const T* a, const T* b, int64_t n, T* out) {                                                      \
    HWY_DYNAMIC_DISPATCH(AddValues##NAME)(a, b, n, out);                                                              \
  }
PERMAFROST_REGION_VALUES(float, F32)
PERMAFROST_REGION_VALUES(double, F64)
#undef PERMAFROST_REGION_VALUES

}  // namespace permafrost::nn
#endif
