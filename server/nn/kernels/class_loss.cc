#include "nn/kernels/class_loss.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/class_loss.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/vectors-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Works by vectors, and value by value over the rest.
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

// Three passes over rows that stay in cache, so that the exponentials fill whole vectors however few the classes are.
template <class T>
double CrossEntropy(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes, T scale,
                    T* gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* const in = logits + r * classes;
    T* const out = gradient + r * classes;
    if (labels[r] != labels[r]) {
      std::fill_n(out, classes, T(0));
      continue;
    }
    const T largest = LargestOf(in, classes);
    for (int64_t c = 0; c < classes; ++c) out[c] = in[c] - largest;
  }
  double total = 0;
  // The label's own value goes into the loss, before its exponential is there.
  for (int64_t r = 0; r < rows; ++r) {
    if (labels[r] != labels[r]) continue;
    const auto label = static_cast<int64_t>(labels[r]);
    const T weight = weights == nullptr ? T(1) : weights[label];
    total -= static_cast<double>(weight * gradient[r * classes + label]);
  }
  ForColumns<1, T>(rows * classes, [&](auto d, auto, int64_t i) HWY_ATTR {
    hn::StoreU(ExpKeepingNaN(d, hn::LoadU(d, gradient + i)), d, gradient + i);
  });
  for (int64_t r = 0; r < rows; ++r) {
    T* const out = gradient + r * classes;
    if (labels[r] != labels[r]) {
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

// Values whose losses are held until they are added up.
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
      // Takes the exponential of a negative number, which cannot overflow: log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
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

// Highway exports plain functions: one of each for each type.
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

}  // namespace permafrost::nn
#endif
