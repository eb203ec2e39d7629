// The graph of an exported program's JSON, and the types, sizes and symbols in it. Throws BadJsonField, which names the
// node, for anything that does not add up.
// Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "program/archive.h"
#include "program/decode.h"
#include "program/json_access.h"
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

struct DecodedGraph {
  Graph graph;
  std::map<std::string, ValueIndex> values;  // by name
};
DecodedGraph DecodeGraph(const Json& json, const Limits& limits);

// The value that {"as_tensor": {"name": "x"}} or {"as_sym_int": {"as_name": "n"}} names; kNoValue of {"as_none": true}.
ValueIndex FindValue(const DecodedGraph& graph, const Json& argument);

}  // namespace permafrost::program
