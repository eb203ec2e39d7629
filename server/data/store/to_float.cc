#include "data/store/to_float.h"

#include <cstring>

namespace permafrost::data {
namespace {

template <class T, class Convert>
void ConvertAll(const std::byte* bytes, int64_t count, float* out, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = convert(value);
  }
}

}  // namespace

void ToFloat(DataType type, const std::byte* bytes, int64_t count, float* out) {
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (type) {
    case DataType::kFloat32:
      if (count > 0) std::memcpy(out, bytes, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::kFloat16:
      return ConvertAll<uint16_t>(bytes, count, out, HalfToFloat);
    case DataType::kBfloat16:
      return ConvertAll<uint16_t>(bytes, count, out, Bfloat16ToFloat);
    case DataType::kInt32:
      return ConvertAll<int32_t>(bytes, count, out, cast);
    case DataType::kInt64:
      return ConvertAll<int64_t>(bytes, count, out, cast);
    case DataType::kUint8:
      return ConvertAll<uint8_t>(bytes, count, out, cast);
    case DataType::kNone:
    case DataType::kSparse:
      return;
  }
}

}  // namespace permafrost::data
