#include "nn/kernels/losses.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/losses.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Returns the largest value. Works by vectors, then value by value on the remaining columns.
template <class T>
T LargestOf(const T* row, int64_t width) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  T largest = -std::numeric_limits<T>::infinity();
  int64_t c = 0;
  if (width >= lanes) {
    auto all = hn::LoadU(d, row);
    for (c = lanes; c + lanes <= width; c += lanes) all = hn::Max(all, hn::LoadU(d, row + c));
    largest = hn::GetLane(hn::MaxOfLanes(d, all));
  }
  for (; c < width; ++c) largest = std::max(largest, row[c]);
  return largest;
}

template <class T>
T SumOf(const T* row, int64_t width) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  T sum = 0;
  int64_t c = 0;
  if (width >= lanes) {
    auto all = hn::LoadU(d, row);
    for (c = lanes; c + lanes <= width; c += lanes) all = hn::Add(all, hn::LoadU(d, row + c));
    sum = hn::GetLane(hn::SumOfLanes(d, all));
  }
  for (; c < width; ++c) sum += row[c];
  return sum;
}

// Makes three passes, in which the rows stay in cache. The pass that computes exponentials runs over all rows as one,
// so it fills whole vectors even with few classes.
template <class T>
double CrossEntropy(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes, T scale,
                    T* gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* const in = logits + r * classes;
    T* const out = gradient + r * classes;
    if (std::isnan(labels[r])) {
      std::fill_n(out, classes, T(0));
      continue;
    }
    const T largest = LargestOf(in, classes);
    for (int64_t c = 0; c < classes; ++c) out[c] = in[c] - largest;
  }
  double total = 0;
  // Adds the label's shifted logit to the loss before the exponential overwrites it.
  for (int64_t r = 0; r < rows; ++r) {
    if (std::isnan(labels[r])) continue;
    const auto label = static_cast<int64_t>(labels[r]);
    const T weight = weights == nullptr ? T(1) : weights[label];
    total -= static_cast<double>(weight * gradient[r * classes + label]);
  }
  ForColumns<1, T>(rows * classes, [&](auto d, auto, int64_t i) HWY_ATTR {
    hn::StoreU(ExpKeepingNaN(d, hn::LoadU(d, gradient + i)), d, gradient + i);
  });
  for (int64_t r = 0; r < rows; ++r) {
    T* const out = gradient + r * classes;
    if (std::isnan(labels[r])) {
      std::fill_n(out, classes, T(0));
      continue;
    }
    const auto label = static_cast<int64_t>(labels[r]);
    const T weight = weights == nullptr ? T(1) : weights[label];
    const T sum = SumOf(out, classes);
    total += static_cast<double>(weight * std::log(sum));
    const T factor = scale * weight / sum;
    for (int64_t c = 0; c < classes; ++c) out[c] *= factor;
    out[label] -= scale * weight;
  }
  return total;
}

// The number of losses that are buffered before they are added up.
constexpr int64_t kHeld = 256;

template <class T>
double Binary(const T* logits, const T* labels, const T* weights, int64_t size, T scale, T* gradient) {
  HWY_ALIGN T loss[kHeld];
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kHeld) {
    const int64_t count = std::min(kHeld, size - begin);
    ForColumns<1, T>(count, [&](auto d, auto, int64_t i) HWY_ATTR {
      const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
      const auto given = hn::LoadU(d, labels + begin + i);
      const auto present = hn::Eq(given, given);
      const auto y = hn::IfThenElseZero(present, given);
      const auto x = hn::IfThenElseZero(present, hn::LoadU(d, logits + begin + i));
      auto weight = hn::IfThenElseZero(present, one);
      if (weights != nullptr) {
        const auto of_label = hn::IfThenElse(hn::Ge(y, one), hn::Set(d, weights[1]), hn::Set(d, weights[0]));
        weight = hn::IfThenElseZero(present, of_label);
      }
      // The exponential of a negative number cannot overflow: log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
      const auto power = ExpKeepingNaN(d, hn::Neg(hn::Abs(x)));
      const auto soft = hn::Sub(hn::Add(hn::Max(x, zero), hn::Log1p(d, power)), hn::Mul(x, y));
      const auto sigmoid = hn::Div(hn::IfThenElse(hn::Lt(x, zero), power, one), hn::Add(one, power));
      hn::StoreU(hn::Mul(weight, soft), d, loss + i);
      hn::StoreU(hn::Mul(hn::Mul(weight, hn::Set(d, scale)), hn::Sub(sigmoid, y)), d, gradient + begin + i);
    });
    for (int64_t i = 0; i < count; ++i) total += static_cast<double>(loss[i]);
  }
  return total;
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_CLASS_LOSS(T, NAME)                                                                          \
  double CrossEntropy##NAME(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes,  \
                            T scale, T* gradient) {                                                             \
    return CrossEntropy(logits, labels, weights, rows, classes, scale, gradient);                               \
  }                                                                                                             \
  double Binary##NAME(const T* logits, const T* labels, const T* weights, int64_t size, T scale, T* gradient) { \
    return Binary(logits, labels, weights, size, scale, gradient);                                              \
  }
PERMAFROST_CLASS_LOSS(float, F32)
PERMAFROST_CLASS_LOSS(double, F64)
#undef PERMAFROST_CLASS_LOSS

// Computes the dot products of one row with kRows others.
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
void ScoreOfWalk(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {
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
double PairLoss(bool negative, int64_t count, T* scores) {
  // Beyond this score the exponential is not finite. There the sigmoid equals 0 or 1 with an error far below 1e-15.
  constexpr T kMost = std::is_same_v<T, float> ? T(88) : T(700);
  T losses[64];
  double sum = 0;
  ForColumns<1, T>(count, [&](auto d, auto, int64_t i) HWY_ATTR {
    const auto one = hn::Set(d, T(1)), eps = hn::Set(d, T(1e-15));
    const auto given = hn::LoadU(d, scores + i);
    // Clamp and Exp need not keep NaN, so NaN scores are put back at the end.
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
void WalkGradient(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale,
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

#define PERMAFROST_SKIP_GRAM(T, NAME)                                                                                 \
  void ScoreOfWalk##NAME(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {                    \
    ScoreOfWalk(shape, table, walk, scores);                                                                          \
  }                                                                                                                   \
  double PairLoss##NAME(bool negative, int64_t count, T* scores) { return PairLoss(negative, count, scores); }        \
  void WalkGradient##NAME(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale, \
                          T* gradients) {                                                                             \
    WalkGradient(shape, table, walk, derivatives, scale, gradients);                                                  \
  }
PERMAFROST_SKIP_GRAM(float, F32)
PERMAFROST_SKIP_GRAM(double, F64)
#undef PERMAFROST_SKIP_GRAM

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_CLASS_LOSS(T, NAME)                                                                          \
  HWY_EXPORT(CrossEntropy##NAME);                                                                               \
  HWY_EXPORT(Binary##NAME);                                                                                     \
  template <>                                                                                                   \
  double CrossEntropyRows<T>(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes, \
                             T scale, T* gradient) {                                                            \
    return HWY_DYNAMIC_DISPATCH(CrossEntropy##NAME)(logits, labels, weights, rows, classes, scale, gradient);   \
  }                                                                                                             \
  template <>                                                                                                   \
  double BinaryCrossEntropy<T>(const T* logits, const T* labels, const T* weights, int64_t size, T scale,       \
                               T* gradient) {                                                                   \
    return HWY_DYNAMIC_DISPATCH(Binary##NAME)(logits, labels, weights, size, scale, gradient);                  \
  }
PERMAFROST_CLASS_LOSS(float, F32)
PERMAFROST_CLASS_LOSS(double, F64)
#undef PERMAFROST_CLASS_LOSS

#define PERMAFROST_SKIP_GRAM(T, NAME)                                                                                \
  HWY_EXPORT(ScoreOfWalk##NAME);                                                                                     \
  HWY_EXPORT(PairLoss##NAME);                                                                                        \
  HWY_EXPORT(WalkGradient##NAME);                                                                                    \
  template <>                                                                                                        \
  void ScoreWalk<T>(const WalkShape& shape, const T* table, const int64_t* walk, T* scores) {                        \
    HWY_DYNAMIC_DISPATCH(ScoreOfWalk##NAME)(shape, table, walk, scores);                                             \
  }                                                                                                                  \
  template <>                                                                                                        \
  double LossOfPairs<T>(bool negative, int64_t count, T* scores) {                                                   \
    return HWY_DYNAMIC_DISPATCH(PairLoss##NAME)(negative, count, scores);                                            \
  }                                                                                                                  \
  template <>                                                                                                        \
  void GradientOfWalk<T>(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale, \
                         T* gradients) {                                                                             \
    HWY_DYNAMIC_DISPATCH(WalkGradient##NAME)(shape, table, walk, derivatives, scale, gradients);                     \
  }
PERMAFROST_SKIP_GRAM(float, F32)
PERMAFROST_SKIP_GRAM(double, F64)
#undef PERMAFROST_SKIP_GRAM

}  // namespace permafrost::nn
#endif
