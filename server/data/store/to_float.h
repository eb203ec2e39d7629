// Rows of any stored type as float32.
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/store/types.h"

namespace permafrost::data {

// The value of an IEEE half. Both branches are computed, so that the loop vectorises. Source: Maratyszcza's FP16
// library, fp16_ieee_to_fp32_value.
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

// Writes `count` values of `type` from `bytes`, which need no alignment, to `out`. Integers beyond 2^24 are rounded.
// scales: of kInt8, [count], by which the values are multiplied; of other types not read.
void ToFloat(DataType type, const std::byte* bytes, int64_t count, float* out, const float* scales = nullptr);
// Adds them to sums[0..count-1].
void AddAsFloat(DataType type, const std::byte* bytes, int64_t count, float* sums, const float* scales = nullptr);

}  // namespace permafrost::data
