#include "nn/kernels/adam.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/adam.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// The factors of an update, computed once for all values.
template <class T>
struct Factors {
  explicit Factors(const AdamUpdate& u)
      : keep1(static_cast<T>(u.beta1)),
        take1(static_cast<T>(1 - u.beta1)),
        keep2(static_cast<T>(u.beta2)),
        take2(static_cast<T>(1 - u.beta2)),
        root(static_cast<T>(1 / std::sqrt(u.correction2))),
        eps(static_cast<T>(u.eps)),
        rate(static_cast<T>(u.learning_rate / u.correction1)),
        decay(static_cast<T>(u.decoupled ? 0 : u.weight_decay)),
        shrink(static_cast<T>(u.decoupled ? u.learning_rate * u.weight_decay : 0)) {}
  T keep1, take1, keep2, take2, root, eps, rate, decay, shrink;
};

template <class T>
void Step(const AdamUpdate& u, int64_t size, const T* gradient, T* value, T* m, T* v) {
  const Factors<T> f(u);
  ForColumns<1, T>(size, [=](auto d, auto, int64_t i) HWY_ATTR {
    auto g = hn::LoadU(d, gradient + i), w = hn::LoadU(d, value + i);
    if (f.shrink != 0) w = hn::NegMulAdd(hn::Set(d, f.shrink), w, w);
    if (f.decay != 0) g = hn::MulAdd(hn::Set(d, f.decay), w, g);
    const auto first = hn::MulAdd(hn::Set(d, f.keep1), hn::LoadU(d, m + i), hn::Mul(hn::Set(d, f.take1), g));
    const auto square = hn::Mul(hn::Mul(hn::Set(d, f.take2), g), g);
    const auto second = hn::MulAdd(hn::Set(d, f.keep2), hn::LoadU(d, v + i), square);
    const auto root = hn::MulAdd(hn::Sqrt(second), hn::Set(d, f.root), hn::Set(d, f.eps));
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, f.rate), first), root)), d, value + i);
  });
}

// Highway exports only plain functions, not templates, so there is one function for each type.
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
