// The ways to compute matrix products.
#pragma once

#include <type_traits>

namespace permafrost::nn {

// kBfloat16: both factors are rounded to bfloat16, to the nearest, and their products added up in float32. For float32
// matrices only.
enum class Products { kFull, kBfloat16 };

template <class T>
inline constexpr bool IsFloat32 = std::is_same_v<T, float>;
template <class T>
constexpr bool IsBfloat16(Products products) {
  return IsFloat32<T> && products == Products::kBfloat16;
}

}  // namespace permafrost::nn
