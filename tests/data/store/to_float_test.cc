#include "data/store/float_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace permafrost::data {
namespace {

// One byte into a buffer: rows of a file need not be aligned.
template <class T>
std::vector<float> Convert(DataType type, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T) + 1);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(T));
  std::vector<float> out(values.size());
  ToFloat(type, bytes.data() + 1, static_cast<int64_t>(values.size()), out.data());
  return out;
}

// The value as IEEE 754 defines it, by its parts.
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
