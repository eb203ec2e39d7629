// The values of features as they are stored, one by one.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "data/store/to_float.h"
#include "data/store/types.h"

namespace permafrost::data {

// Value i of bytes that hold values of T, which need no alignment.
template <class T>
T LoadValue(const std::byte* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Calls run(value_at), where value_at(bytes, i) is value i of a type of integers.
template <class Run>
auto WithIntegers(DataType type, const Run& run) {
  switch (type) {
    case DataType::kInt64:
      return run([](const std::byte* bytes, size_t i) { return LoadValue<int64_t>(bytes, i); });
    case DataType::kUint8:
      return run([](const std::byte* bytes, size_t i) { return int64_t{LoadValue<uint8_t>(bytes, i)}; });
    default:
      return run([](const std::byte* bytes, size_t i) { return int64_t{LoadValue<int32_t>(bytes, i)}; });
  }
}

// Calls run(value_at), where value_at(bytes, i) is value i of a dense type as double; not of kInt8, whose values need
// their scales.
template <class Run>
auto WithValues(DataType type, const Run& run) {
  switch (type) {
    case DataType::kInt32:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<int32_t>(bytes, i)); });
    case DataType::kInt64:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<int64_t>(bytes, i)); });
    case DataType::kUint8:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<uint8_t>(bytes, i)); });
    case DataType::kFloat16:
      return run([](const std::byte* bytes, size_t i) -> double { return HalfToFloat(LoadValue<uint16_t>(bytes, i)); });
    case DataType::kBfloat16:
      return run(
          [](const std::byte* bytes, size_t i) -> double { return Bfloat16ToFloat(LoadValue<uint16_t>(bytes, i)); });
    default:
      return run([](const std::byte* bytes, size_t i) -> double { return LoadValue<float>(bytes, i); });
  }
}

}  // namespace permafrost::data
