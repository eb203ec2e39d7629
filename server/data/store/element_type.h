// Translates between the types of features in a store (ElementType) and to its users (DataType). Threads: pure.
#pragma once

#include <array>
#include <utility>

#include "data/store/format.h"
#include "data/store/types.h"

namespace permafrost::data {

inline constexpr std::array<std::pair<DataType, ElementType>, 7> kFeatureTypes{{
    {DataType::kInt32, ElementType::kInt32},
    {DataType::kFloat32, ElementType::kFloat32},
    {DataType::kFloat16, ElementType::kFloat16},
    {DataType::kBfloat16, ElementType::kBfloat16},
    {DataType::kUint8, ElementType::kUint8},
    {DataType::kInt64, ElementType::kInt64},
    {DataType::kInt8, ElementType::kInt8},
}};

// kNone for what features are not made of.
constexpr DataType DataTypeOf(ElementType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (element == type) return data;
  }
  return DataType::kNone;
}
// The element type of a dense type; kBytes for kNone and kSparse.
constexpr ElementType ElementTypeOf(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return element;
  }
  return ElementType::kBytes;
}
// 0 for kNone and kSparse.
constexpr uint64_t ElementBytes(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return ElementBytes(element);
  }
  return 0;
}

}  // namespace permafrost::data
