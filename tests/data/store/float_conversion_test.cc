#include "data/store/float_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

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

// Returns the bits of the value nearest to `value` in a 16-bit type, with ties to even. It finds the two values
// around `value` and picks one of them.
template <class Widen>
uint16_t NearestByDefinition(float value, const Widen& widen) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  uint16_t below = 0, above = 0x7fff;  // positive values rise with their bits
  while (above - below > 1) {
    const auto middle = static_cast<uint16_t>((below + above) / 2);
    // NaN compares false, so it counts as above every value.
    (widen(middle) <= size ? below : above) = middle;
  }
  const double down = static_cast<double>(size) - static_cast<double>(widen(below));
  // Above the largest value, infinity takes the place of the next value.
  const double next = std::isinf(widen(above)) ? 2 * static_cast<double>(widen(below)) -
                                                     static_cast<double>(widen(static_cast<uint16_t>(below - 1)))
                                               : static_cast<double>(widen(above));
  const double up = next - static_cast<double>(size);
  return static_cast<uint16_t>(sign | (down < up || (down == up && below % 2 == 0) ? below : above));
}

TEST(FromFloat, ToTheNearestValueTiesToEven) {
  SplitMix64 random(5, 0);
  for (int i = 0; i < 300'000; ++i) {
    // The values are of all magnitudes. Every other one is a tie, or next to a tie.
    auto bits = static_cast<uint32_t>(random.Next());
    if (i % 2 == 1) bits = (bits & 0xffff0000u) + 0x8000u + static_cast<uint32_t>(random.Below(3)) - 1;
    if (i % 4 == 3) bits = (bits & 0xffffe000u) + 0x1000u + static_cast<uint32_t>(random.Below(3)) - 1;
    // A third of them lies in the range of a half, including subnormal values.
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
  // The upper half of this NaN alone would be an infinity.
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(FromBits(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(FromBits(0xff800001u)))));
}

// Reads at an odd address, because the rows of a file need not be aligned.
template <class T>
std::vector<float> Convert(DataType type, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T) + 1);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(T));
  std::vector<float> out(values.size());
  ToFloat(type, bytes.data() + 1, static_cast<int64_t>(values.size()), out.data());
  return out;
}

// Returns the value as IEEE 754 defines it, computed from sign, exponent and fraction.
float HalfByDefinition(uint16_t half) {
  const int sign = half >> 15 != 0 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
  if (exponent == 31) return fraction == 0 ? static_cast<float>(sign) * INFINITY : NAN;
  const double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return std::copysign(static_cast<float>(value), static_cast<float>(sign));
}

TEST(ToFloat, EveryHalfIsItsValue) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const std::vector<float> floats = Convert(DataType::kFloat16, halves);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float want = HalfByDefinition(halves[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(floats[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(want)) << i;
    }
  }
}

TEST(ToFloat, EveryBrainFloatIsTheUpperHalfOfItsValue) {
  std::vector<uint16_t> brains(65536);
  for (size_t i = 0; i < brains.size(); ++i) brains[i] = static_cast<uint16_t>(i);
  const std::vector<float> floats = Convert(DataType::kBfloat16, brains);
  for (size_t i = 0; i < brains.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]) >> 16, i);
}

TEST(ToFloat, IntegersAndFloats) {
  EXPECT_EQ(Convert<uint8_t>(DataType::kUint8, {0, 1, 255}), (std::vector<float>{0, 1, 255}));
  EXPECT_EQ(Convert<int32_t>(DataType::kInt32, {0, -1, 16777216, std::numeric_limits<int32_t>::min()}),
            (std::vector<float>{0, -1, 16777216, -2147483648.0f}));
  EXPECT_EQ(Convert<int64_t>(DataType::kInt64, {-5, int64_t{1} << 40}), (std::vector<float>{-5, 0x1p40f}));
  EXPECT_EQ(Convert<float>(DataType::kFloat32, {-0.5f, 3e38f}), (std::vector<float>{-0.5f, 3e38f}));
  const int8_t steps[] = {-127, 0, 1, 127};
  const float scales[] = {0.5f, 3, 0.1f, 2};
  float out[4], sums[] = {1, 1, 1, 1};
  ToFloat(DataType::kInt8, reinterpret_cast<const std::byte*>(steps), 4, out, scales);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{-63.5f, 0, 0.1f, 254}));
  AddAsFloat(DataType::kInt8, reinterpret_cast<const std::byte*>(steps), 4, sums, scales);
  EXPECT_EQ(std::vector<float>(sums, sums + 4), (std::vector<float>{-62.5f, 1, 1 + 0.1f, 255}));
  std::vector<float> untouched = {7};
  ToFloat(DataType::kFloat32, nullptr, 0, untouched.data());
  EXPECT_EQ(untouched[0], 7);
}

}  // namespace
}  // namespace permafrost::data
