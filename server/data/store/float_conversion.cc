#include "data/store/float_conversion.h"

#include <cstring>

namespace permafrost::data {
namespace {

// Calls to(i, f) for each of `count` values, where f is value i as a float.
template <class T, class Convert, class To>
void ForValues(const std::byte* bytes, int64_t count, const Convert& convert, const To& to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    to(i, convert(value));
  }
}

template <class To>
void ForFloats(DataType type, const std::byte* bytes, int64_t count, const float* scales, const To& to) {
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (type) {
    case DataType::kFloat32:
      return ForValues<float>(bytes, count, cast, to);
    case DataType::kFloat16:
      return ForValues<uint16_t>(bytes, count, HalfToFloat, to);
    case DataType::kBfloat16:
      return ForValues<uint16_t>(bytes, count, Bfloat16ToFloat, to);
    case DataType::kInt32:
      return ForValues<int32_t>(bytes, count, cast, to);
    case DataType::kInt64:
      return ForValues<int64_t>(bytes, count, cast, to);
    case DataType::kUint8:
      return ForValues<uint8_t>(bytes, count, cast, to);
    case DataType::kInt8:
      if (scales == nullptr) return;
      return ForValues<int8_t>(bytes, count, cast, [&](int64_t i, float value) { to(i, value * scales[i]); });
    case DataType::kNone:
    case DataType::kSparse:
      return;
  }
}

}  // namespace

void ToFloat(DataType type, const std::byte* bytes, int64_t count, float* __restrict__ out,
             const float* __restrict__ scales) {
  if (type == DataType::kFloat32) {
    if (count > 0) std::memcpy(out, bytes, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  ForFloats(type, bytes, count, scales, [out](int64_t i, float value) { out[i] = value; });
}

void AddAsFloat(DataType type, const std::byte* bytes, int64_t count, float* __restrict__ sums,
                const float* __restrict__ scales) {
  ForFloats(type, bytes, count, scales, [sums](int64_t i, float value) { sums[i] += value; });
}

}  // namespace permafrost::data
