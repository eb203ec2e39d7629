// Types, sizes and symbols of an exported program's JSON. Throws BadJsonField for anything that does not add up.
// Threads: pure functions.
#pragma once

#include <string>

#include "program/decode.h"
#include "program/json_access.h"
#include "program/limits.h"
#include "program/program.h"

namespace permafrost::program {

// Numbers of the enums ScalarType and MemoryFormat.
DType DecodeDType(const Json& value);
MemoryFormat DecodeMemoryFormat(const Json& value);

// "Mul(Integer(2), Symbol('s77', positive=True, integer=True))" as "Mul(2, s77)".
std::string ReadableExpression(const std::string& text);
// {"as_int": 3} or {"as_expr": {"expr_str": "..."}}
Size DecodeSize(const Json& value);
TensorType DecodeTensorType(const Json& meta, const Limits& limits);
StoredTensor DecodeStoredTensor(const Json& payload, const Limits& limits);

}  // namespace permafrost::program
