// Functions of vectors with the results that std's have for 0, inf and NaN.
// Compiled once for each instruction set: included by .cc files that Highway's foreach_target.h includes again.
#if defined(PERMAFROST_NN_KERNELS_EDGE_REGION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PERMAFROST_NN_KERNELS_EDGE_REGION_MATH_INL_H_
#undef PERMAFROST_NN_KERNELS_EDGE_REGION_MATH_INL_H_
#else
#define PERMAFROST_NN_KERNELS_EDGE_REGION_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// hn::Exp takes NaN for a small number, and promises nothing about large ones.
template <class D, class V>
HWY_INLINE V ExpOf(D d, V x) {
  using T = hn::TFromD<D>;
  const auto most = hn::Set(d, sizeof(T) == 4 ? T(89) : T(710));  // whose exponential is inf
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::IfThenElse(hn::Gt(x, most), most, x)));
}

template <class D, class V>
HWY_INLINE V Expm1Of(D d, V x) {
  using T = hn::TFromD<D>;
  const auto most = hn::Set(d, sizeof(T) == 4 ? T(89) : T(710));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Expm1(d, hn::IfThenElse(hn::Gt(x, most), most, x)));
}

// hn::Log and hn::Log1p take inf and NaN for finite numbers.
template <class D, class V>
HWY_INLINE V LogOf(D d, V x) {
  using T = hn::TFromD<D>;
  const auto inf = hn::Set(d, std::numeric_limits<T>::infinity());
  const auto nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  auto y = hn::IfThenElse(hn::Eq(x, inf), inf, hn::Log(d, x));
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), y);
  return hn::IfThenElse(hn::Or(hn::Lt(x, hn::Zero(d)), hn::IsNaN(x)), nan, y);
}

template <class D, class V>
HWY_INLINE V TanhOf(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

template <class D, class V>
HWY_INLINE V SigmoidOf(D d, V x) {
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, ExpOf(d, hn::Neg(x))));
}

// beta 1, threshold 20
template <class D, class V>
HWY_INLINE V SoftplusOf(D d, V x) {
  const auto as_it_is = hn::Or(hn::Gt(x, hn::Set(d, hn::TFromD<D>(20))), hn::IsNaN(x));
  return hn::IfThenElse(as_it_is, x, hn::Log1p(d, hn::Exp(d, hn::IfThenElse(as_it_is, hn::Zero(d), x))));
}

// The larger one; NaN where either is. hn::Max promises nothing about NaN that holds on every target.
template <class V>
HWY_INLINE V LargerOf(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
template <class V>
HWY_INLINE V SmallerOf(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggle
