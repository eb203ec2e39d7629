
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/store/types.h"

namespace permafrost::data {

// Conversion of rows of any stored type to float32.
// Threads: pure functions.

// Returns the value of an IEEE half. Computes the normal and the subnormal result and selects one, so that a loop
// over values vectorises. Source: Maratyszcza's FP16 library, fp16_ieee_to_fp32_value.
inline float HalfToFloat(uint16_t half) {
  const uint32_t word = uint32_t{half} << 16;
  const uint32_t sign = word & 0x80000000u, twice = word + word;
  const float normal = std::bit_cast<float>((twice >> 4) + (uint32_t{0xE0} << 23)) * 0x1p-112f;
  const float subnormal = std::bit_cast<float>((twice >> 17) | (uint32_t{126} << 23)) - 0.5f;
  const uint32_t bits =
      twice < (uint32_t{1} << 27) ? std::bit_cast<uint32_t>(subnormal) : std::bit_cast<uint32_t>(normal);
  return std::bit_cast<float>(sign | bits);
}

inline float Bfloat16ToFloat(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// Converts `count` values of `type` from `bytes` and writes them to `out`. `bytes` needs no alignment. Integers
// beyond 2^24 are rounded. For kInt8, value i is multiplied by scales[i]. For other types, `scales` is not read.
void ToFloat(DataType type, const std::byte* bytes, int64_t count, float* out, const float* scales = nullptr);
// Converts like ToFloat, and adds the values to sums[0..count-1].
void AddAsFloat(DataType type, const std::byte* bytes, int64_t count, float* sums, const float* scales = nullptr);

// Conversion of floats to the nearest values of a narrower type, with ties to even. Values that are too large become
// infinite, and NaN stays NaN.
// Threads: pure functions.

// Returns the bits of the nearest IEEE half. Source: Maratyszcza's FP16 library, fp16_ieee_from_fp32_value.
inline uint16_t FloatToHalf(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = word & 0x80000000u, twice = word + word;
  constexpr uint32_t kInfinityTwice = 0xff000000u, kLeastBias = 0x71000000u;
  // Values that are too large for a half become infinite in `base`. The addition below rounds: `bias` shifts out the
  // bits that a half does not keep.
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
