// Loops over the columns of rows, by vectors, and prefetches of rows.
// Compiled once for each instruction set: included by .cc files that Highway's foreach_target.h includes again.
#if defined(PERMAFROST_NN_KERNELS_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PERMAFROST_NN_KERNELS_COLUMNS_INL_H_
#undef PERMAFROST_NN_KERNELS_COLUMNS_INL_H_
#else
#define PERMAFROST_NN_KERNELS_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace permafrost::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, std::integral_constant of the number of vectors, first column) until all columns are done: kVectors
// vectors at once, then one, then four columns at once, then column by column.
template <int kVectors, class T, class Body>
HWY_INLINE void ForColumns(int64_t width, const Body& body) {
  const hn::ScalableTag<T> d;
  [[maybe_unused]] const hn::CappedTag<T, 4> four;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + kVectors * lanes <= width; c += kVectors * lanes) body(d, std::integral_constant<int, kVectors>(), c);
  for (; c + lanes <= width; c += lanes) body(d, std::integral_constant<int, 1>(), c);
  if constexpr (hn::MaxLanes(d) > 4) {
    for (; c + 4 <= width; c += 4) body(four, std::integral_constant<int, 1>(), c);
  }
  for (; c < width; ++c) body(one, std::integral_constant<int, 1>(), c);
}

// Rows of tables lie anywhere: the one that many rows ahead is asked for early.
constexpr int64_t kRowsAhead = 8;

template <class T>
HWY_INLINE void AskForRow(const T* row, int64_t width) {
  for (int64_t c = 0; c < width; c += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

}  // namespace permafrost::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggle
