// Decodes the graph of an exported program's JSON, with its types, sizes and symbols. Also reads members of untrusted
// JSON. If a member has another type than the caller asks for, the functions throw BadJsonField. CatchJsonErrors
// (base/json_fields.h) turns this exception into a Status. Numbers are never rounded or wrapped. If a graph is
// inconsistent, the exception names the node.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "program/decode.h"
#include "program/program.h"

namespace permafrost::program {

using Json = nlohmann::json;

[[noreturn]] inline void Refuse(const std::string& what) { throw BadJsonField{what}; }

inline const Json& ObjectOf(const Json& value, const char* what) {
  if (!value.is_object()) Refuse(absl::StrCat(what, ": an object was expected, not ", value.type_name()));
  return value;
}
inline const Json& ListOf(const Json& value, const char* what) {
  if (!value.is_array()) Refuse(absl::StrCat(what, ": a list was expected, not ", value.type_name()));
  return value;
}
inline const std::string& TextOf(const Json& value, const char* what) {
  if (!value.is_string()) Refuse(absl::StrCat(what, ": a string was expected, not ", value.type_name()));
  return value.get_ref<const std::string&>();
}
inline bool BoolOf(const Json& value, const char* what) {
  if (!value.is_boolean()) Refuse(absl::StrCat(what, ": true or false was expected, not ", value.type_name()));
  return value.get<bool>();
}
inline int64_t IntOf(const Json& value, const char* what) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                        : value.is_number_integer();
  if (!fits) {
    Refuse(absl::StrCat(what, ": a 64-bit integer was expected, not ",
                        value.is_structured() ? value.type_name() : Shorten(value.dump())));
  }
  return value.get<int64_t>();
}
inline double FloatOf(const Json& value, const char* what) {
  if (value.is_number()) return value.get<double>();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  Refuse(absl::StrCat(what, ": a number, Infinity, -Infinity or NaN was expected, not ", value.type_name()));
}

// Returns the member `name` of an object. Throws BadJsonField if the object lacks it.
inline const Json& At(const Json& object, const char* name) {
  const auto found = ObjectOf(object, name).find(name);
  if (found == object.end()) Refuse(absl::StrCat(name, ": is missing"));
  return *found;
}
// Returns the member `name` of an object. Returns nullptr if the member is missing or JSON's null.
inline const Json* Find(const Json& object, const char* name) {
  const auto found = ObjectOf(object, name).find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}
// Returns the only member of an object such as {"as_int": 3}.
inline std::pair<std::string, const Json*> Union(const Json& value, const char* what) {
  if (ObjectOf(value, what).size() != 1) Refuse(absl::StrCat(what, ": one member was expected, not ", value.size()));
  return {value.begin().key(), &value.begin().value()};
}

// Returns the name in {"name": "x"}. Refuses an object with more members, since they may change its meaning.
inline const std::string& NameOf(const Json& value, const char* what) {
  const std::string& name = TextOf(At(value, "name"), "name");
  if (value.size() != 1) Refuse(absl::StrCat(what, ": ", Quote(name), ": has members other than its name"));
  return name;
}

// Both functions decode a number: a value of the schema's enum ScalarType or MemoryFormat.
DType DecodeDType(const Json& value);
MemoryFormat DecodeMemoryFormat(const Json& value);

// Turns "Mul(Integer(2), Symbol('s77', positive=True, integer=True))" into "Mul(2, s77)".
std::string ReadableExpression(const std::string& text);
// Decodes {"as_int": 3} or {"as_expr": {"expr_str": "..."}}.
Size DecodeSize(const Json& value);
TensorType DecodeTensorType(const Json& meta, const Limits& limits);
StoredTensor DecodeStoredTensor(const Json& payload, const Limits& limits);

struct DecodedGraph {
  Graph graph;
  std::map<std::string, ValueIndex> values;  // by name
};
DecodedGraph DecodeGraph(const Json& json, const Limits& limits);

// Returns the value named by {"as_tensor": {"name": "x"}} or {"as_sym_int": {"as_name": "n"}}; kNoValue for
// {"as_none": true}.
ValueIndex FindValue(const DecodedGraph& graph, const Json& argument);

}  // namespace permafrost::program
