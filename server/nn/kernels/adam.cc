#include "nn/kernels/adam.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/adam.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for each target.
#include "nn/kernels/columns-inl.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// The values from `i` on, as many as d has lanes.
template <class D, class T>
HWY_INLINE void StepLanes(D d, const AdamUpdate& u, int64_t i, const T* gradient, T* value, T* m, T* v) {
  const auto set = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<T>(x)); };
  auto g = hn::LoadU(d, gradient + i), w = hn::LoadU(d, value + i);
  if (u.weight_decay != 0) {
    if (u.decoupled) {
      w = hn::NegMulAdd(set(u.learning_rate * u.weight_decay), w, w);
    } else {
      g = hn::MulAdd(set(u.weight_decay), w, g);
    }
  }
  const auto first = hn::MulAdd(set(u.beta1), hn::LoadU(d, m + i), hn::Mul(set(1 - u.beta1), g));
  const auto second = hn::MulAdd(set(u.beta2), hn::LoadU(d, v + i), hn::Mul(hn::Mul(set(1 - u.beta2), g), g));
  const auto root = hn::MulAdd(hn::Sqrt(second), set(1 / std::sqrt(u.correction2)), set(u.eps));
  hn::StoreU(first, d, m + i);
  hn::StoreU(second, d, v + i);
  hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(set(u.learning_rate / u.correction1), first), root)), d, value + i);
}

template <class T>
void Step(const AdamUpdate& u, int64_t size, const T* gradient, T* value, T* m, T* v) {
  ForColumns<1, T>(size, [&](auto d, auto, int64_t i) HWY_ATTR { StepLanes(d, u, i, gradient, value, m, v); });
}

// Highway exports plain functions: one of each for each type.
#define PERMAFROST_ADAM(T, NAME)                                                                     \
  void Step##NAME(const AdamUpdate& update, int64_t size, const T* gradient, T* value, T* m, T* v) { \
    Step(update, size, gradient, value, m, v);                                                       \
  }
PERMAFROST_ADAM(float, F32)
PERMAFROST_ADAM(double, F64)
#undef PERMAFROST_ADAM

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_ADAM(T, NAME)                                                                      \
  HWY_EXPORT(Step##NAME);                                                                             \
  template <>                                                                                         \
  void AdamStep<T>(const AdamUpdate& update, int64_t size, const T* gradient, T* value, T* m, T* v) { \
    HWY_DYNAMIC_DISPATCH(Step##NAME)(update, size, gradient, value, m, v);                            \
  }
PERMAFROST_ADAM(float, F32)
PERMAFROST_ADAM(double, F64)
#undef PERMAFROST_ADAM

}  // namespace permafrost::nn
#endif
