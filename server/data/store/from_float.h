// Floats as the nearest narrower ones, ties to even. Values that are too large become infinite; NaN stays NaN.
// Threads: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace permafrost::data {

// The bits of an IEEE half. Source: Maratyszcza's FP16 library, fp16_ieee_from_fp32_value.
inline uint16_t FloatToHalf(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = word & 0x80000000u, twice = word + word;
  constexpr uint32_t kInfinityTwice = 0xff000000u, kLeastBias = 0x71000000u;
  // Rounds where the addition below aligns the bits that stay; what is too large becomes infinite before.
  const float base = (std::fabs(value) * 0x1p112f) * 0x1p-110f;
  const uint32_t bias = (twice & kInfinityTwice) < kLeastBias ? kLeastBias : twice & kInfinityTwice;
  const auto bits = std::bit_cast<uint32_t>(std::bit_cast<float>((bias >> 1) + 0x07800000u) + base);
  const uint32_t rounded = ((bits >> 13) & 0x7c00u) + (bits & 0xfffu);
  return static_cast<uint16_t>(sign >> 16 | (twice > kInfinityTwice ? 0x7e00u : rounded));
}

inline uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kQuiet = 0x40;
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | kQuiet);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace permafrost::data
