#include "data/store/float_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace permafrost::data {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(FromFloat, WhatIsNarrowAlreadyStaysAsItIs) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (std::isnan(HalfToFloat(bits))) {
      ASSERT_TRUE(std::isnan(HalfToFloat(FloatToHalf(HalfToFloat(bits))))) << i;
    } else {
      ASSERT_EQ(FloatToHalf(HalfToFloat(bits)), bits);
    }
    if (std::isnan(Bfloat16ToFloat(bits))) {
      ASSERT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(Bfloat16ToFloat(bits))))) << i;
    } else {
      ASSERT_EQ(FloatToBfloat16(Bfloat16ToFloat(bits)), bits);
    }
  }
}

// The nearest of a type's values to `value`, ties to the even one: found among the two that it lies between.
template <class Widen>
uint16_t NearestByDefinition(float value, const Widen& widen) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  uint16_t below = 0, above = 0x7fff;  // the bits of positive values rise with the values
  while (above - below > 1) {
    const auto middle = static_cast<uint16_t>((below + above) / 2);
    // NaN: beyond all.
    (widen(middle) <= size ? below : above) = middle;
  }
  const double down = static_cast<double>(size) - static_cast<double>(widen(below));
  // Beyond the largest value infinity stands where the next value would be.
  const double next = std::isinf(widen(above)) ? 2 * static_cast<double>(widen(below)) -
                                                     static_cast<double>(widen(static_cast<uint16_t>(below - 1)))
                                               : static_cast<double>(widen(above));
  const double up = next - static_cast<double>(size);
  return static_cast<uint16_t>(sign | (down < up || (down == up && below % 2 == 0) ? below : above));
}

TEST(FromFloat, ToTheNearestValueTiesToEven) {
  SplitMix64 random(5, 0);
  for (int i = 0; i < 300'000; ++i) {
    // Values of all sizes, and every other one a tie or one bit beside one.
    auto bits = static_cast<uint32_t>(random.Next());
    if (i % 2 == 1) bits = (bits & 0xffff0000u) + 0x8000u + static_cast<uint32_t>(random.Below(3)) - 1;
    if (i % 4 == 3) bits = (bits & 0xffffe000u) + 0x1000u + static_cast<uint32_t>(random.Below(3)) - 1;
    // A third within what a half can hold, subnormal ones too.
    if (i % 3 == 0) bits = (bits & 0x807fffffu) | static_cast<uint32_t>(96 + random.Below(50)) << 23;
    const float value = FromBits(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), NearestByDefinition(value, HalfToFloat)) << value;
    ASSERT_EQ(FloatToBfloat16(value), NearestByDefinition(value, Bfloat16ToFloat)) << value;
  }
}

TEST(FromFloat, TooLargeIsInfiniteAndNanStays) {
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff) << "rounds to the largest";
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToBfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBfloat16(Bfloat16ToFloat(0x7f7f)), 0x7f7f);
  // A NaN whose upper half alone would be infinite.
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(FromBits(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(FromBits(0xff800001u)))));
}

}  // namespace
}  // namespace permafrost::data
