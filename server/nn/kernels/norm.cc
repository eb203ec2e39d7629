#include "nn/kernels/norm.h"

#include "nn/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/norm.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file for each target.
#include "nn/kernels/vectors-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

// Plain loops, for which the compiler's vectoriser uses the target's instructions. The functions are not inlined. If
// they were, the compiler would forget that the pointers are restricted.
template <class T>
HWY_NOINLINE void Moments(const T* HWY_RESTRICT z, int64_t rows, int64_t width, T* HWY_RESTRICT mean,
                          T* HWY_RESTRICT squares) {
  std::fill_n(mean, width, T(0));
  std::fill_n(squares, width, T(0));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) mean[c] += z[r * width + c];
  const auto count = static_cast<T>(std::max<int64_t>(1, rows));
  for (int64_t c = 0; c < width; ++c) mean[c] /= count;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const T difference = z[r * width + c] - mean[c];
      squares[c] += difference * difference;
    }
}

template <bool kRelu, class T>
HWY_NOINLINE void Apply(const T* HWY_RESTRICT z, int64_t rows, int64_t width, const T* HWY_RESTRICT scale,
                        const T* HWY_RESTRICT shift, T* HWY_RESTRICT out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const T v = z[r * width + c] * scale[c] + shift[c];
      out[r * width + c] = kRelu && v < T(0) ? T(0) : v;
    }
}

// Applies DropoutMix to each lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MixLanes(D d, V h) {
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(d, kDropoutMix1));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<13>(h)), hn::Set(d, kDropoutMix2));
  return hn::Xor(h, hn::ShiftRight<16>(h));
}

// Returns a mask for d: true in each lane whose hash is below the threshold. Hashes are unsigned, and half as wide as
// float64.
template <class D, class DU, class V>
HWY_INLINE hn::Mask<D> Below(D d, DU du, V hash, uint32_t threshold) {
  const auto below = hn::VecFromMask(du, hn::Lt(hash, hn::Set(du, threshold)));
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(uint32_t)) {
    return hn::MaskFromVec(hn::BitCast(d, below));
  } else {
    const hn::RebindToSigned<D> wide;
    return hn::MaskFromVec(hn::BitCast(d, hn::PromoteTo(wide, hn::BitCast(hn::RebindToSigned<DU>(), below))));
  }
}

template <class T>
HWY_NOINLINE void Drop(const DropoutMask& mask, T kept, const int64_t* row_keys, int64_t first_row, int64_t rows,
                       int64_t width, const T* x, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row_key = row_keys == nullptr ? first_row + r : row_keys[r];
    const uint32_t row = DropoutMix(mask.key ^ static_cast<uint32_t>(row_key));
    ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
      const hn::Rebind<uint32_t, decltype(d)> du;
      const auto columns = hn::Mul(hn::Iota(du, static_cast<uint32_t>(c)), hn::Set(du, kDropoutColumnStride));
      const auto hash = MixLanes(du, hn::Xor(columns, hn::Set(du, row)));
      const auto value = hn::Mul(hn::LoadU(d, x + r * width + c), hn::Set(d, kept));
      hn::StoreU(hn::IfThenZeroElse(Below(d, du, hash, mask.threshold), value), d, y + r * width + c);
    });
  }
}

// Returns the gradient that passes dropout and ReLU, for the columns from `at` on.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE V Passed(D d, const T* grad, const T* out, V kept, int64_t at) {
  const auto passed = hn::Mul(hn::LoadU(d, grad + at), kept);
  return out == nullptr ? passed : hn::IfThenZeroElse(hn::Le(hn::LoadU(d, out + at), hn::Zero(d)), passed);
}

template <class T>
void Sums(const T* grad, const T* out, const T* z, const T* mean, T kept, int64_t rows, int64_t width, T* sum, T* dot) {
  ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
    const auto center = hn::LoadU(d, mean + c), factor = hn::Set(d, kept);
    auto total = hn::Zero(d), product = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * width + c;
      const auto g = Passed(d, grad, out, factor, at);
      total = hn::Add(total, g);
      product = hn::MulAdd(g, hn::Sub(hn::LoadU(d, z + at), center), product);
    }
    hn::StoreU(total, d, sum + c);
    hn::StoreU(product, d, dot + c);
  });
}

template <class T>
void Gradient(const T* grad, const T* out, const T* z, const T* mean, T kept, const T* scale, const T* mean_grad,
              const T* mean_dot, int64_t rows, int64_t width, T* gz) {
  for (int64_t r = 0; r < rows; ++r) {
    ForColumns<1, T>(width, [&](auto d, auto, int64_t c) HWY_ATTR {
      const int64_t at = r * width + c;
      const auto centered = hn::Sub(hn::LoadU(d, z + at), hn::LoadU(d, mean + c));
      const auto g = hn::Sub(Passed(d, grad, out, hn::Set(d, kept), at), hn::LoadU(d, mean_grad + c));
      hn::StoreU(hn::Mul(hn::LoadU(d, scale + c), hn::NegMulAdd(centered, hn::LoadU(d, mean_dot + c), g)), d, gz + at);
    });
  }
}

template <class T>
HWY_NOINLINE void Add(const T* HWY_RESTRICT parts, int64_t stride, int64_t count, int64_t size, T* HWY_RESTRICT to) {
  std::copy_n(parts, size, to);
  for (int64_t c = 1; c < count; ++c)
    for (int64_t i = 0; i < size; ++i) to[i] += parts[c * stride + i];
}

// Highway exports only plain functions, not templates, so there is one function for each type.
#define PERMAFROST_NORM(T, NAME)                                                                                       \
  void Moments##NAME(const T* z, int64_t rows, int64_t width, T* mean, T* squares) {                                   \
    Moments(z, rows, width, mean, squares);                                                                            \
  }                                                                                                                    \
  void Apply##NAME(const T* z, int64_t rows, int64_t width, const T* scale, const T* shift, bool relu, T* out) {       \
    relu ? Apply<true>(z, rows, width, scale, shift, out) : Apply<false>(z, rows, width, scale, shift, out);           \
  }                                                                                                                    \
  void Drop##NAME(const DropoutMask& mask, T kept, const int64_t* row_keys, int64_t first_row, int64_t rows,           \
                  int64_t width, const T* x, T* y) {                                                                   \
    Drop(mask, kept, row_keys, first_row, rows, width, x, y);                                                          \
  }                                                                                                                    \
  void Sums##NAME(const T* grad, const T* out, const T* z, const T* mean, T kept, int64_t rows, int64_t width, T* sum, \
                  T* dot) {                                                                                            \
    Sums(grad, out, z, mean, kept, rows, width, sum, dot);                                                             \
  }                                                                                                                    \
  void Gradient##NAME(const T* grad, const T* out, const T* z, const T* mean, T kept, const T* scale,                  \
                      const T* mean_grad, const T* mean_dot, int64_t rows, int64_t width, T* gz) {                     \
    Gradient(grad, out, z, mean, kept, scale, mean_grad, mean_dot, rows, width, gz);                                   \
  }                                                                                                                    \
  void Add##NAME(const T* parts, int64_t stride, int64_t count, int64_t size, T* to) {                                 \
    Add(parts, stride, count, size, to);                                                                               \
  }
PERMAFROST_NORM(float, F32)
PERMAFROST_NORM(double, F64)
#undef PERMAFROST_NORM

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace permafrost::nn {

#define PERMAFROST_NORM(T, NAME)                                                                                   \
  HWY_EXPORT(Moments##NAME);                                                                                       \
  HWY_EXPORT(Apply##NAME);                                                                                         \
  HWY_EXPORT(Drop##NAME);                                                                                          \
  HWY_EXPORT(Sums##NAME);                                                                                          \
  HWY_EXPORT(Add##NAME);                                                                                           \
  HWY_EXPORT(Gradient##NAME);                                                                                      \
  template <>                                                                                                      \
  void ColumnMoments<T>(const T* z, int64_t rows, int64_t width, T* mean, T* squares) {                            \
    HWY_DYNAMIC_DISPATCH(Moments##NAME)(z, rows, width, mean, squares);                                            \
  }                                                                                                                \
  template <>                                                                                                      \
  void ScaleShift<T>(const T* z, int64_t rows, int64_t width, const T* scale, const T* shift, bool relu, T* out) { \
    HWY_DYNAMIC_DISPATCH(Apply##NAME)(z, rows, width, scale, shift, relu, out);                                    \
  }                                                                                                                \
  template <>                                                                                                      \
  void DropRows<T>(const DropoutMask& mask, T kept, const int64_t* row_keys, int64_t first_row, int64_t rows,      \
                   int64_t width, const T* x, T* y) {                                                              \
    HWY_DYNAMIC_DISPATCH(Drop##NAME)(mask, kept, row_keys, first_row, rows, width, x, y);                          \
  }                                                                                                                \
  template <>                                                                                                      \
  void NormGradientSums<T>(const T* grad, const T* out, const T* z, const T* mean, T kept, int64_t rows,           \
                           int64_t width, T* sum, T* dot) {                                                        \
    HWY_DYNAMIC_DISPATCH(Sums##NAME)(grad, out, z, mean, kept, rows, width, sum, dot);                             \
  }                                                                                                                \
  template <>                                                                                                      \
  void NormGradient<T>(const T* grad, const T* out, const T* z, const T* mean, T kept, const T* scale,             \
                       const T* mean_grad, const T* mean_dot, int64_t rows, int64_t width, T* gz) {                \
    HWY_DYNAMIC_DISPATCH(Gradient##NAME)                                                                           \
    (grad, out, z, mean, kept, scale, mean_grad, mean_dot, rows, width, gz);                                       \
  }                                                                                                                \
  template <>                                                                                                      \
  void AddParts<T>(const T* parts, int64_t stride, int64_t count, int64_t size, T* to) {                           \
    HWY_DYNAMIC_DISPATCH(Add##NAME)(parts, stride, count, size, to);                                               \
  }
PERMAFROST_NORM(float, F32)
PERMAFROST_NORM(double, F64)
#undef PERMAFROST_NORM

}  // namespace permafrost::nn
#endif
