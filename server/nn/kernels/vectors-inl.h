// Loops over the columns of rows by vectors, prefetches of rows, and vector functions. For 0, inf and NaN, the vector
// functions give the results of std's functions. This file is compiled once for each instruction set: .cc files
// include it, and Highway's foreach_target.h includes each of these .cc files again.
#if defined(PERMAFROST_NN_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PERMAFROST_NN_KERNELS_VECTORS_INL_H_
#undef PERMAFROST_NN_KERNELS_VECTORS_INL_H_
#else
#define PERMAFROST_NN_KERNELS_VECTORS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Starts at column `c`, processes as many columns as fill whole vectors, and moves `c` past them. Takes kVectors
// vectors at once (a power of two), then kVectors / 2 at once, and so on down to one. Calls body(tag, n, first column),
// where n is a std::integral_constant, the number of vectors.
template <int kVectors, class D, class Body>
HWY_INLINE void ForVectors(D d, int64_t width, const Body& body, int64_t& c) {
  static_assert(kVectors > 0 && (kVectors & (kVectors - 1)) == 0);
  const int64_t step = kVectors * static_cast<int64_t>(hn::Lanes(d));
  for (; c + step <= width; c += step) body(d, std::integral_constant<int, kVectors>(), c);
  if constexpr (kVectors > 1) ForVectors<kVectors / 2>(d, width, body, c);
}

// Calls body(tag, n, first column) until all columns are done; n is a std::integral_constant, the number of vectors. It
// takes whole vectors first (ForVectors), then four columns at once, then one column.
template <int kVectors, class T, class Body>
HWY_INLINE void ForColumns(int64_t width, const Body& body) {
  const hn::ScalableTag<T> d;
  [[maybe_unused]] const hn::CappedTag<T, 4> four;
  const hn::CappedTag<T, 1> one;
  int64_t c = 0;
  ForVectors<kVectors>(d, width, body, c);
  if constexpr (hn::MaxLanes(d) > 4) {
    for (; c + 4 <= width; c += 4) body(four, std::integral_constant<int, 1>(), c);
  }
  for (; c < width; ++c) body(one, std::integral_constant<int, 1>(), c);
}

// Rows of tables are scattered, so a loop prefetches the row that is this many rows ahead.
constexpr int64_t kRowsAhead = 8;

template <class T>
HWY_INLINE void AskForRow(const T* row, int64_t width) {
  for (int64_t c = 0; c < width; c += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

// Returns exp(x) for x that is not large; NaN stays NaN. hn::Exp treats NaN as a small number, and promises nothing
// about large numbers.
template <class D, class V>
HWY_INLINE V ExpKeepingNaN(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}
// Returns exp(x) for every x; NaN stays NaN.
template <class D, class V>
HWY_INLINE V ExpOf(D d, V x) {
  using T = hn::TFromD<D>;
  const auto most = hn::Set(d, sizeof(T) == 4 ? T(89) : T(710));  // its exponential is inf
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::IfThenElse(hn::Gt(x, most), most, x)));
}

template <class D, class V>
HWY_INLINE V Expm1Of(D d, V x) {
  using T = hn::TFromD<D>;
  const auto most = hn::Set(d, sizeof(T) == 4 ? T(89) : T(710));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Expm1(d, hn::IfThenElse(hn::Gt(x, most), most, x)));
}

// Returns log(x), also for inf and NaN, which hn::Log treats as finite numbers.
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

// Softplus with beta 1 and threshold 20.
template <class D, class V>
HWY_INLINE V SoftplusOf(D d, V x) {
  const auto as_it_is = hn::Or(hn::Gt(x, hn::Set(d, hn::TFromD<D>(20))), hn::IsNaN(x));
  return hn::IfThenElse(as_it_is, x, hn::Log1p(d, hn::Exp(d, hn::IfThenElse(as_it_is, hn::Zero(d), x))));
}

// Returns the larger value, or NaN if either value is NaN. hn::Max makes no promise about NaN that holds on every
// target.
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
