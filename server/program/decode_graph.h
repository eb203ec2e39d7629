// The graph of an exported program's JSON. Throws BadJsonField, which names the node, for anything that does
// not add up.
// Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "program/json_access.h"
#include "program/limits.h"
#include "program/program.h"

namespace permafrost::program {

struct DecodedGraph {
  Graph graph;
  std::map<std::string, ValueIndex> values;  // by name
};
DecodedGraph DecodeGraph(const Json& json, const Limits& limits);

// The value that {"as_tensor": {"name": "x"}} or {"as_sym_int": {"as_name": "n"}} names; kNoValue of {"as_none": true}.
ValueIndex FindValue(const DecodedGraph& graph, const Json& argument);

}  // namespace permafrost::program
