#include "program/decode_graph.h"

#include <array>
#include <cctype>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace permafrost::program {
namespace {

constexpr std::array<std::pair<int64_t, DType>, 10> kDTypes{{{1, DType::kUint8},
                                                             {2, DType::kInt8},
                                                             {3, DType::kInt16},
                                                             {4, DType::kInt32},
                                                             {5, DType::kInt64},
                                                             {6, DType::kFloat16},
                                                             {7, DType::kFloat32},
                                                             {8, DType::kFloat64},
                                                             {12, DType::kBool},
                                                             {13, DType::kBfloat16}}};
constexpr int64_t kStrided = 7;
constexpr size_t kLongestExpression = 4096;

int64_t NumberOf(const Json& size, const char* what) {
  const auto [kind, value] = Union(size, what);
  if (kind != "as_int") Refuse(absl::StrCat(what, ": a stored tensor's must be a number"));
  return IntOf(*value, what);
}

}  // namespace

DType DecodeDType(const Json& value) {
  const int64_t number = IntOf(value, "dtype");
  for (const auto& [known, dtype] : kDTypes)
    if (known == number) return dtype;
  Refuse(absl::StrCat("dtype: ", number, " is none of ", kDTypeNames.Accepted()));
}

MemoryFormat DecodeMemoryFormat(const Json& value) {
  const int64_t number = IntOf(value, "as_memory_format");
  if (number < 1 || number > 4) Refuse(absl::StrCat("as_memory_format: ", number, " is outside 1..4"));
  return static_cast<MemoryFormat>(number - 1);
}

std::string ReadableExpression(const std::string& text) {
  if (text.size() > kLongestExpression) {
    Refuse(absl::StrCat("expr_str: its ", text.size(), " bytes are more than ", kLongestExpression));
  }
  std::string out;
  // Copies the text from `begin` up to the character `stop`, and moves `at` behind the next ")".
  const auto take = [&](size_t& at, size_t begin, char stop) {
    const size_t end = text.find(stop, begin), close = text.find(')', begin);
    if (end == text.npos || close == text.npos) return false;
    out += text.substr(begin, end - begin);
    at = close + 1;
    return true;
  };
  for (size_t at = 0; at < text.size();) {
    const bool word_before =
        at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_');
    if (!word_before && text.compare(at, 8, "Symbol('") == 0 && take(at, at + 8, '\'')) continue;
    if (!word_before && text.compare(at, 8, "Integer(") == 0 && take(at, at + 8, ')')) continue;
    out += text[at++];
  }
  return out;
}

Size DecodeSize(const Json& value) {
  const auto [kind, content] = Union(value, "size");
  if (kind == "as_int") return {.number = IntOf(*content, "size"), .expression = ""};
  if (kind != "as_expr") Refuse(absl::StrCat("size: ", Quote(kind), " is none of as_int, as_expr"));
  const std::string expression = ReadableExpression(TextOf(At(*content, "expr_str"), "expr_str"));
  int64_t number = 0;  // a known size may also be written as an expression: "Integer(64)"
  if (absl::SimpleAtoi(expression, &number)) return {.number = number, .expression = ""};
  if (expression.empty()) Refuse("expr_str: is empty");
  return {.number = 0, .expression = expression};
}

TensorType DecodeTensorType(const Json& meta, const Limits& limits) {
  TensorType type;
  type.dtype = DecodeDType(At(meta, "dtype"));
  type.requires_grad = BoolOf(At(meta, "requires_grad"), "requires_grad");
  const Json& sizes = ListOf(At(meta, "sizes"), "sizes");
  if (sizes.size() > static_cast<size_t>(limits.dimensions)) {
    Refuse(absl::StrCat("sizes: ", sizes.size(), " dimensions are more than ", limits.dimensions));
  }
  type.sizes.reserve(sizes.size());
  for (const Json& size : sizes) {
    type.sizes.push_back(DecodeSize(size));
    if (type.sizes.back().number < 0) Refuse(absl::StrCat("sizes: ", type.sizes.back().number, " is negative"));
  }
  if (IntOf(At(meta, "layout"), "layout") != kStrided) Refuse("layout: only strided tensors (7) are accepted");
  return type;
}

StoredTensor DecodeStoredTensor(const Json& payload, const Limits& limits) {
  if (BoolOf(At(payload, "use_pickle"), "use_pickle")) Refuse("use_pickle: pickled tensors are not read");
  StoredTensor stored;
  stored.file = TextOf(At(payload, "path_name"), "path_name");
  const Json& meta = At(payload, "tensor_meta");
  stored.type = DecodeTensorType(meta, limits);
  for (const Size& size : stored.type.sizes)
    if (!size.expression.empty()) Refuse("sizes: a stored tensor's must be numbers");
  const Json& strides = ListOf(At(meta, "strides"), "strides");
  if (strides.size() != stored.type.sizes.size()) {
    Refuse(absl::StrCat("strides: ", strides.size(), " of them, for ", stored.type.sizes.size(), " sizes"));
  }
  stored.strides.reserve(strides.size());
  for (const Json& stride : strides) stored.strides.push_back(NumberOf(stride, "strides"));
  stored.offset = NumberOf(At(meta, "storage_offset"), "storage_offset");
  if (stored.offset < 0) Refuse(absl::StrCat("storage_offset: ", stored.offset, " is negative"));
  for (const int64_t stride : stored.strides)
    if (stride < 0) Refuse(absl::StrCat("strides: ", stride, " is negative"));
  return stored;
}

namespace {

// Calls `read`. If it throws BadJsonField, puts `what` before the exception's text.
template <class Read>
void Within(const std::string& what, const Read& read) {
  try {
    read();
  } catch (const BadJsonField& error) {
    Refuse(absl::StrCat(what, ": ", error.description));
  }
}

struct NamedKind {
  std::string name;
  ValueKind kind = ValueKind::kTensor;
};

// Reads the name of a tensor, as in {"as_tensor": {"name": "x"}}, or of one of three kinds of symbols. Returns false
// if `kind` is none of these.
bool ReadNamed(const std::string& kind, const Json& value, NamedKind& named) {
  if (kind == "as_tensor") {
    named = {NameOf(value, "as_tensor"), ValueKind::kTensor};
    return true;
  }
  constexpr std::pair<const char*, ValueKind> kSymbols[] = {
      {"as_sym_int", ValueKind::kInt}, {"as_sym_float", ValueKind::kFloat}, {"as_sym_bool", ValueKind::kBool}};
  for (const auto& [symbol, of] : kSymbols) {
    if (kind != symbol) continue;
    const auto [form, content] = Union(value, symbol);
    if (form != "as_name") return false;
    named = {TextOf(*content, symbol), of};
    return true;
  }
  return false;
}

class GraphDecoder {
 public:
  GraphDecoder(const Limits& limits, int64_t& nodes_left, int64_t depth)
      : limits_(limits), nodes_left_(nodes_left), depth_(depth) {}

  DecodedGraph Decode(const Json& json) {
    for (const Json& input : ListOf(At(json, "inputs"), "inputs")) out_.graph.inputs.push_back(Define(input, "inputs"));
    const Json& nodes = ListOf(At(json, "nodes"), "nodes");
    nodes_left_ -= static_cast<int64_t>(nodes.size());
    if (nodes_left_ < 0) Refuse(absl::StrCat("nodes: more than ", limits_.nodes, " of them"));
    out_.graph.nodes.reserve(nodes.size());
    for (const Json& node : nodes) DecodeNode(node);
    Within("outputs", [&] {
      for (const Json& output : ListOf(At(json, "outputs"), "outputs"))
        out_.graph.outputs.push_back(FindValue(out_, output));
    });
    return std::move(out_);
  }

 private:
  ValueIndex Define(const NamedKind& named) {
    const auto index = static_cast<ValueIndex>(out_.graph.values.size());
    if (!out_.values.emplace(named.name, index).second) {
      Refuse(absl::StrCat(Quote(named.name), " is defined twice"));
    }
    out_.graph.values.push_back({named.name, named.kind});
    return index;
  }
  ValueIndex Define(const Json& argument, const char* what) {
    const auto [kind, value] = Union(argument, what);
    NamedKind named;
    if (!ReadNamed(kind, *value, named)) Refuse(absl::StrCat(what, ": ", Quote(kind), " is not accepted here"));
    return Define(named);
  }

  void DecodeNode(const Json& json) {
    const Json* name = Find(json, "name");
    Node node;
    node.target = TextOf(At(json, "target"), "target");
    node.name = name == nullptr ? node.target : TextOf(*name, "name");
    if (const Json* metadata = Find(json, "metadata")) {
      const auto text = [&](const char* key) {
        const Json* found = Find(*metadata, key);
        return found == nullptr ? std::string() : TextOf(*found, key);
      };
      node.source = SourceLine(text("stack_trace"), text("nn_module_stack"));
    }
    Within(Describe(node), [&] {
      for (const Json& input : ListOf(At(json, "inputs"), "inputs")) {
        NamedArgument argument;
        argument.name = TextOf(At(input, "name"), "name");
        argument.value = DecodeArgument(At(input, "arg"));
        node.inputs.push_back(std::move(argument));
      }
      for (const Json& output : ListOf(At(json, "outputs"), "outputs")) node.outputs.push_back(DecodeOutput(output));
    });
    out_.graph.nodes.push_back(std::move(node));
  }

  Output DecodeOutput(const Json& json) {
    const auto [kind, value] = Union(json, "outputs");
    if (kind == "as_none") return {.values = {kNoValue}, .is_list = false};
    if (kind != "as_tensors") return {.values = {Define(json, "outputs")}, .is_list = false};
    Output output{.values = {}, .is_list = true};
    for (const Json& tensor : ListOf(*value, "as_tensors"))
      output.values.push_back(Define({NameOf(tensor, "as_tensors"), ValueKind::kTensor}));
    return output;
  }

  Ref Use(const NamedKind& named) const {
    const auto found = out_.values.find(named.name);
    if (found == out_.values.end()) Refuse(absl::StrCat(Quote(named.name), " is used before it is defined"));
    if (const ValueKind kind = out_.graph.values[found->second].kind; kind != named.kind) {
      Refuse(absl::StrCat(Quote(named.name), " is used as ", AbslView(kValueKindNames.Name(named.kind)), ", and is ",
                          AbslView(kValueKindNames.Name(kind))));
    }
    return {found->second};
  }
  Ref UseTensor(const Json& tensor) const { return Use({NameOf(tensor, "as_tensors"), ValueKind::kTensor}); }

  Argument DecodeArgument(const Json& json) {
    const auto [kind, content] = Union(json, "arg");
    const Json& value = *content;
    NamedKind named;
    if (ReadNamed(kind, value, named)) return Use(named);
    if (kind == "as_none") return None{};
    if (kind == "as_int") return IntOf(value, "as_int");
    if (kind == "as_float") return FloatOf(value, "as_float");
    if (kind == "as_bool") return BoolOf(value, "as_bool");
    if (kind == "as_string") return TextOf(value, "as_string");
    if (kind == "as_sym_int") return IntOf(At(value, "as_int"), "as_sym_int");
    if (kind == "as_sym_float") return FloatOf(At(value, "as_float"), "as_sym_float");
    if (kind == "as_sym_bool") return BoolOf(At(value, "as_bool"), "as_sym_bool");
    if (kind == "as_scalar_type") return DecodeDType(value);
    if (kind == "as_memory_format") return DecodeMemoryFormat(value);
    if (kind == "as_device") return DecodeDevice(value);
    if (kind == "as_graph") return DecodeRegion(value);
    if (kind == "as_layout") {
      if (IntOf(value, "as_layout") != 7) Refuse("as_layout: only strided tensors (7) are accepted");
      return StridedLayout{};
    }
    return DecodeList(kind, value);
  }

  Argument DecodeList(const std::string& kind, const Json& value) const {
    if (kind == "as_tensors") {
      Refs refs;
      for (const Json& tensor : ListOf(value, "as_tensors")) refs.values.push_back(UseTensor(tensor).value);
      return refs;
    }
    if (kind == "as_optional_tensors") {
      Refs refs;
      for (const Json& element : ListOf(value, "as_optional_tensors")) {
        const auto [form, tensor] = Union(element, "as_optional_tensors");
        refs.values.push_back(form == "as_tensor" ? UseTensor(*tensor).value : kNoValue);
      }
      return refs;
    }
    if (kind == "as_ints") {
      Ints ints;
      for (const Json& element : ListOf(value, "as_ints")) ints.values.emplace_back(IntOf(element, "as_ints"));
      return ints;
    }
    if (kind == "as_sym_ints") {
      Ints ints;
      for (const Json& element : ListOf(value, "as_sym_ints")) {
        const auto [form, number] = Union(element, "as_sym_ints");
        if (form == "as_name") {
          ints.values.emplace_back(Use({TextOf(*number, "as_sym_ints"), ValueKind::kInt}));
        } else {
          ints.values.emplace_back(IntOf(*number, "as_sym_ints"));
        }
      }
      return ints;
    }
    if (kind == "as_floats") {
      std::vector<double> floats;
      for (const Json& element : ListOf(value, "as_floats")) floats.push_back(FloatOf(element, "as_floats"));
      return floats;
    }
    if (kind == "as_bools") {
      std::vector<bool> bools;
      for (const Json& element : ListOf(value, "as_bools")) bools.push_back(BoolOf(element, "as_bools"));
      return bools;
    }
    Refuse(absl::StrCat("arg: ", Quote(kind), " is not accepted"));
  }

  static Device DecodeDevice(const Json& json) {
    const std::string& type = TextOf(At(json, "type"), "as_device");
    for (const char* known : {"cpu", "cuda", "mps"})
      if (type == known) return Device{};
    Refuse(absl::StrCat("as_device: ", Quote(type), " is none of cpu, cuda, mps"));
  }

  std::shared_ptr<const Graph> DecodeRegion(const Json& json) {
    if (depth_ + 1 > limits_.nested_regions) {
      Refuse(absl::StrCat("as_graph: more than ", limits_.nested_regions, " regions within each other"));
    }
    GraphDecoder decoder(limits_, nodes_left_, depth_ + 1);
    return std::make_shared<const Graph>(decoder.Decode(At(json, "graph")).graph);
  }

  const Limits& limits_;
  int64_t& nodes_left_;
  int64_t depth_;
  DecodedGraph out_;
};

}  // namespace

DecodedGraph DecodeGraph(const Json& json, const Limits& limits) {
  int64_t nodes_left = limits.nodes;
  return GraphDecoder(limits, nodes_left, 0).Decode(json);
}

ValueIndex FindValue(const DecodedGraph& graph, const Json& argument) {
  const auto [kind, value] = Union(argument, "arg");
  if (kind == "as_none") return kNoValue;
  NamedKind named;
  if (!ReadNamed(kind, *value, named)) Refuse(absl::StrCat(Quote(kind), " is not accepted here"));
  const auto found = graph.values.find(named.name);
  if (found == graph.values.end()) Refuse(absl::StrCat(Quote(named.name), " is not defined"));
  if (graph.graph.values[found->second].kind != named.kind)
    Refuse(absl::StrCat(Quote(named.name), ": of another kind"));
  return found->second;
}

}  // namespace permafrost::program
