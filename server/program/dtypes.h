// Types of a program as libtorch's.
// Threads: pure functions.
#pragma once

#include <c10/core/ScalarType.h>

#include "program/program.h"

namespace permafrost::program {

inline at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBool:
      return at::kBool;
    case DType::kBfloat16:
      return at::kBFloat16;
  }
  return at::kFloat;
}

}  // namespace permafrost::program
