#include "nn/kernels/skip_gram.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/skip_gram.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Dot products of one row with kRows others.
template <int kRows, class T>
HWY_INLINE void Dots(const T* row, const T* const* others, int64_t dimension, T* out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> total[kRows];
  for (int k = 0; k < kRows; ++k) total[k] = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= dimension; c += lanes) {
    const auto own = hn::LoadU(d, row + c);
    for (int k = 0; k < kRows; ++k) total[k] = hn::MulAdd(own, hn::LoadU(d, others[k] + c), total[k]);
  }
  for (int k = 0; k < kRows; ++k) {
    T sum = hn::GetLane(hn::SumOfLanes(d, total[k]));
    for (int64_t rest = c; rest < dimension; ++rest) sum += row[rest] * others[k][rest];
    out[k] = sum;
  }
}

template <class T>
void Score(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {
  const int64_t each = shape.context - 1, width = shape.dimension;
  for (int64_t j = 0; j < shape.windows(); ++j) {
    const T* const row = table + walk[j] * width;
    T* const out = scores + j * each;
    for (int64_t t = 0; t < each; t += 4) {
      const T* others[4];
      const int64_t count = std::min<int64_t>(4, each - t);
      for (int64_t k = 0; k < count; ++k) others[k] = table + walk[j + 1 + t + k] * width;
      switch (count) {
        case 1:
          Dots<1>(row, others, width, out + t);
          break;
        case 2:
          Dots<2>(row, others, width, out + t);
          break;
        case 3:
          Dots<3>(row, others, width, out + t);
          break;
        default:
          Dots<4>(row, others, width, out + t);
      }
    }
  }
}

template <class T>
double Loss(bool negative, int64_t count, T* scores) {
  // Beyond it the exponential has no finite value; the sigmoid is 0 or 1 to far below 1e-15 by then.
  constexpr T kMost = std::is_same_v<T, float> ? T(88) : T(700);
  T losses[64];
  double sum = 0;
  ForColumns<1, T>(count, [&](auto d, auto, int64_t i) HWY_ATTR {
    const auto one = hn::Set(d, T(1)), eps = hn::Set(d, T(1e-15));
    const auto given = hn::LoadU(d, scores + i);
    // Neither the minimum nor the exponential of a NaN has to be one.
    const auto none = hn::IsNaN(given);
    const auto score = hn::Clamp(given, hn::Set(d, -kMost), hn::Set(d, kMost));
    const auto sigmoid = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(score))));
    const auto other = hn::Sub(one, sigmoid);
    const auto likelihood = hn::Add(negative ? other : sigmoid, eps);
    const auto derivative = hn::Div(hn::Mul(sigmoid, other), likelihood);
    hn::StoreU(hn::IfThenElse(none, given, negative ? derivative : hn::Neg(derivative)), d, scores + i);
    hn::StoreU(hn::IfThenElse(none, given, hn::Neg(hn::Log(d, likelihood))), d, losses);
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) sum += static_cast<double>(losses[lane]);
  });
  return sum;
}

template <class T>
void Gradient(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale,
              T* gradients) {
  const int64_t each = shape.context - 1, windows = shape.windows(), width = shape.dimension;
  std::vector<const T*> rows(static_cast<size_t>(2 * each));
  std::vector<T> factors(rows.size());
  for (int64_t i = 0; i < shape.length; ++i) {
    size_t partners = 0;
    const auto add = [&](int64_t node, T derivative) {
      rows[partners] = table + walk[node] * width;
      factors[partners++] = scale * derivative;
    };
    for (int64_t j = std::max<int64_t>(0, i - each); j < std::min(i, windows); ++j) {
      add(j, derivatives[j * each + (i - j - 1)]);
    }
    for (int64_t t = 0; i < windows && t < each; ++t) add(i + 1 + t, derivatives[i * each + t]);
    T* const to = gradients + i * width;
    ForColumns<4, T>(width, [&](auto d, auto vectors, int64_t c) HWY_ATTR {
      constexpr int kVectors = decltype(vectors)::value;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      hn::Vec<decltype(d)> total[kVectors];
      for (int v = 0; v < kVectors; ++v) total[v] = hn::Zero(d);
      for (size_t p = 0; p < partners; ++p) {
        const auto factor = hn::Set(d, factors[p]);
        for (int v = 0; v < kVectors; ++v) {
          total[v] = hn::MulAdd(factor, hn::LoadU(d, rows[p] + c + v * lanes), total[v]);
        }
      }
      for (int v = 0; v < kVectors; ++v) hn::StoreU(total[v], d, to + c + v * lanes);
    });
  }
}

// Highway exports plain functions only, so there is one function for each type.
#define PERMAFROST_SKIP_GRAM(T, NAME)                                                                             \
  void Score##NAME(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {                      \
    Score(shape, table, walk, scores);                                                                            \
  }                                                                                                               \
  double Loss##NAME(bool negative, int64_t count, T* scores) { return Loss(negative, count, scores); }            \
  void Gradient##NAME(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale, \
                      T* gradients) {                                                                             \
    Gradient(shape, table, walk, derivatives, scale, gradients);                                                  \
  }
PERMAFROST_SKIP_GRAM(float, F32)
PERMAFROST_SKIP_GRAM(double, F64)
#undef PERMAFROST_SKIP_GRAM

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_SKIP_GRAM(T, NAME)                                                                                \
  HWY_EXPORT(Score##NAME);                                                                                           \
  HWY_EXPORT(Loss##NAME);                                                                                            \
  HWY_EXPORT(Gradient##NAME);                                                                                        \
  template <>                                                                                                        \
  void ScoreWalk<T>(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {                        \
    HWY_DYNAMIC_DISPATCH(Score##NAME)(shape, table, walk, scores);                                                   \
  }                                                                                                                  \
  template <>                                                                                                        \
  double LossOfPairs<T>(bool negative, int64_t count, T* scores) {                                                   \
    return HWY_DYNAMIC_DISPATCH(Loss##NAME)(negative, count, scores);                                                \
  }                                                                                                                  \
  template <>                                                                                                        \
  void GradientOfWalk<T>(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale, \
                         T* gradients) {                                                                             \
    HWY_DYNAMIC_DISPATCH(Gradient##NAME)(shape, table, walk, derivatives, scale, gradients);                         \
  }
PERMAFROST_SKIP_GRAM(float, F32)
PERMAFROST_SKIP_GRAM(double, F64)
#undef PERMAFROST_SKIP_GRAM

}  // namespace permafrost::nn
#endif
