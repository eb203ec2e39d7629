#include "program/decode.h"

#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "program/decode_graph.h"

namespace permafrost::program {
namespace {

// Refuses text that is nested too deeply, since the JSON library copies and prints values by recursion.
absl::Status CheckDepth(const std::string& what, const std::string& text, const Limits& limits) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ']' || c == '}') --depth;
    if ((c == '[' || c == '{') && ++depth > limits.json_depth) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": more than ", limits.json_depth, " lists and objects within each other"));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kSchemaMajor = 8;
constexpr int kTorchMajor = 2, kFirstMinor = 11, kLastMinor = 14;

void ReadVersions(const Json& json, Program& program) {
  const Json& version = At(json, "schema_version");
  program.schema_major = IntOf(At(version, "major"), "schema_version.major");
  program.schema_minor = IntOf(At(version, "minor"), "schema_version.minor");
  program.torch_version = TextOf(At(json, "torch_version"), "torch_version");
}

// Checks the versions. This comes before all other reading, because another version may have other fields.
absl::Status CheckVersions(const Program& program) {
  const std::vector<std::string> parts = absl::StrSplit(program.torch_version, '.');
  int major = 0, minor = 0;
  const bool known = parts.size() >= 2 && absl::SimpleAtoi(parts[0], &major) && absl::SimpleAtoi(parts[1], &minor) &&
                     major == kTorchMajor && minor >= kFirstMinor && minor <= kLastMinor;
  if (known && program.schema_major == kSchemaMajor) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("schema_version: ", program.schema_major, ".", program.schema_minor,
                                                 " of torch ", Quote(program.torch_version), ", where ", kSchemaMajor,
                                                 " of torch ", kTorchMajor, ".", kFirstMinor, " to ", kTorchMajor, ".",
                                                 kLastMinor, " is accepted"));
}

// The types of a graph's tensors and the sizes of its ints, as the file declares them.
class Declared {
 public:
  Declared(const Json& graph, const Limits& limits) : graph_(graph), limits_(limits) {}
  TensorType Tensor(const std::string& name) const {
    return DecodeTensorType(Entry(At(graph_, "tensor_values"), name), limits_);
  }
  // Sets the types of tensor values. If a type is not accepted, leaves it out. An input with such a type is refused,
  // but a value between two nodes may have one.
  void TellTypes(Graph& graph) const {
    for (Graph::Value& value : graph.values) {
      if (value.kind != ValueKind::kTensor) continue;
      try {
        value.type = Tensor(value.name);
      } catch (const BadJsonField&) {
        value.type.reset();
      }
    }
  }
  Size Int(const std::string& name) const { return DecodeSize(Entry(At(graph_, "sym_int_values"), name)); }

 private:
  static const Json& Entry(const Json& table, const std::string& name) {
    const auto found = ObjectOf(table, "tensor_values").find(name);
    if (found == table.end()) Refuse(absl::StrCat(Quote(name), ": has no type"));
    return *found;
  }
  const Json& graph_;
  const Limits& limits_;
};

constexpr struct {
  const char* spec;
  const char* name;
  StateKind kind;
} kStates[] = {{"parameter", "parameter_name", StateKind::kParameter},
               {"buffer", "buffer_name", StateKind::kBuffer},
               {"tensor_constant", "tensor_constant_name", StateKind::kConstant}};

void ReadState(const Json& spec, const char* name_of, StateKind kind, const DecodedGraph& graph,
               const Declared& declared, Program& program) {
  State state;
  state.kind = kind;
  state.name = TextOf(At(spec, name_of), name_of);
  const std::string& argument = TextOf(At(At(spec, "arg"), "name"), "name");
  const auto found = graph.values.find(argument);
  if (found == graph.values.end()) Refuse(absl::StrCat(Quote(argument), " is not defined"));
  state.value = found->second;
  state.type = declared.Tensor(argument);
  if (kind == StateKind::kBuffer) state.persistent = BoolOf(At(spec, "persistent"), "persistent");
  if (kind == StateKind::kConstant) state.persistent = false;
  program.state.push_back(std::move(state));
}

void ReadUserInput(const Json& spec, const DecodedGraph& graph, const Declared& declared, Program& program) {
  Input input;
  input.value = FindValue(graph, At(spec, "arg"));
  if (input.value == kNoValue) Refuse("input_specs: an input that is None is not accepted");
  const Graph::Value& value = graph.graph.values[input.value];
  input.name = value.name;
  input.kind = value.kind;
  if (input.kind == ValueKind::kTensor) input.type = declared.Tensor(input.name);
  if (input.kind == ValueKind::kInt) input.size = declared.Int(input.name);
  if (input.kind == ValueKind::kFloat || input.kind == ValueKind::kBool) {
    Refuse(absl::StrCat("input ", Quote(input.name), ": only tensors and ints are accepted"));
  }
  program.inputs.push_back(std::move(input));
}

// Refuses an argument that was None, a number or text at export, since the exported graph is valid for this one value
// only.
void RefuseConstantInputs(const Json& signature) {
  for (const Json& spec : ListOf(At(signature, "input_specs"), "input_specs")) {
    const auto [kind, content] = Union(spec, "input_specs");
    if (kind != "constant_input") continue;
    const std::string value = Union(At(*content, "value"), "constant_input").first;
    Refuse(absl::StrCat("input ", Quote(TextOf(At(*content, "name"), "name")), ": is ",
                        value == "as_none" ? "None" : "a constant",
                        " in the export; only tensors and sizes are accepted, so leave it to forward's default"));
  }
}

void ReadInputs(const Json& signature, const DecodedGraph& graph, const Declared& declared, Program& program) {
  for (const Json& spec : ListOf(At(signature, "input_specs"), "input_specs")) {
    const auto [kind, content] = Union(spec, "input_specs");
    if (kind == "user_input") {
      ReadUserInput(*content, graph, declared, program);
      continue;
    }
    bool known = false;
    for (const auto& row : kStates) {
      if (kind != row.spec) continue;
      known = true;
      ReadState(*content, row.name, row.kind, graph, declared, program);
    }
    if (!known) {
      Refuse(absl::StrCat("input_specs: ", Quote(kind), " is none of user_input, parameter, buffer, tensor_constant"));
    }
  }
  // The signature's input_specs must name each input of the graph once.
  std::multiset<ValueIndex> told;
  for (const Input& input : program.inputs) told.insert(input.value);
  for (const State& state : program.state) told.insert(state.value);
  if (told != std::multiset<ValueIndex>(graph.graph.inputs.begin(), graph.graph.inputs.end())) {
    Refuse("input_specs: are not those of the graph's inputs");
  }
}

void ReadOutputs(const Json& signature, const DecodedGraph& graph, const Declared& declared, Program& program) {
  std::map<std::string, size_t> states;
  for (size_t i = 0; i < program.state.size(); ++i)
    if (program.state[i].kind == StateKind::kBuffer) states.emplace(program.state[i].name, i);
  for (const Json& spec : ListOf(At(signature, "output_specs"), "output_specs")) {
    const auto [kind, content] = Union(spec, "output_specs");
    if (kind == "user_output") {
      program.outputs.push_back(FindValue(graph, At(*content, "arg")));
    } else if (kind == "loss_output") {
      program.outputs.push_back(FindValue(graph, {{"as_tensor", At(*content, "arg")}}));
    } else if (kind == "buffer_mutation") {
      const std::string& name = TextOf(At(*content, "buffer_name"), "buffer_name");
      const auto state = states.find(name);
      if (state == states.end()) Refuse(absl::StrCat("buffer_mutation: no buffer ", Quote(name)));
      program.updates.push_back(
          {.value = FindValue(graph, {{"as_tensor", At(*content, "arg")}}), .state = state->second});
    } else {
      Refuse(absl::StrCat("output_specs: ", Quote(kind), " is none of user_output, loss_output, buffer_mutation"));
    }
  }
  if (program.outputs.empty()) Refuse("output_specs: the module returns nothing");
  for (const ValueIndex output : program.outputs) {
    TensorType& type = program.output_types.emplace_back();
    if (output == kNoValue) continue;
    const Graph::Value& value = graph.graph.values[output];
    if (value.kind == ValueKind::kTensor) type = declared.Tensor(value.name);
  }
  std::set<ValueIndex> returned(graph.graph.outputs.begin(), graph.graph.outputs.end());
  returned.insert(kNoValue);
  for (const ValueIndex output : program.outputs)
    if (!returned.contains(output)) Refuse("output_specs: the graph does not return one of them");
  for (const BufferUpdate& update : program.updates)
    if (update.value == kNoValue || !returned.contains(update.value))
      Refuse("buffer_mutation: the graph does not return it");
}

// torch.export treats sizes 0 and 1 as special cases, so it sets the minimum of every dynamic size to 2. The
// operators also run at 0 and 1, so a minimum of 2 is read as 0. A larger minimum is the module's own and is kept.
constexpr int64_t kLeastExported = 2;

void ReadRanges(const Json& json, Program& program) {
  for (const auto& [symbol, range] : ObjectOf(At(json, "range_constraints"), "range_constraints").items()) {
    Range& read = program.ranges.emplace_back();
    read.symbol = symbol;
    if (const Json* min = Find(range, "min_val")) read.min = IntOf(*min, "min_val");
    if (read.min == kLeastExported) read.min = 0;
    if (const Json* max = Find(range, "max_val")) read.max = IntOf(*max, "max_val");
  }
}

// Arguments that PyG's modules take. In each, one dimension is the batch's number of nodes or of edges.
constexpr struct {
  const char* input;
  int64_t dimension;
  std::string BatchSymbols::*symbol;
} kSizesOfInputs[] = {{"x", 0, &BatchSymbols::nodes},          {"pos", 0, &BatchSymbols::nodes},
                      {"z", 0, &BatchSymbols::nodes},          {"batch", 0, &BatchSymbols::nodes},
                      {"edge_index", 1, &BatchSymbols::edges}, {"edge_attr", 0, &BatchSymbols::edges},
                      {"edge_weight", 0, &BatchSymbols::edges}};
constexpr const char* kGraphCounts[] = {"num_graphs", "batch_size", "size"};

BatchSymbols FindBatchSymbols(const std::vector<Input>& inputs) {
  BatchSymbols symbols;
  for (const Input& input : inputs) {
    for (const auto& row : kSizesOfInputs) {
      if (input.name != row.input || input.type.sizes.size() <= static_cast<size_t>(row.dimension)) continue;
      std::string& symbol = symbols.*row.symbol;
      if (symbol.empty()) symbol = input.type.sizes[row.dimension].expression;
    }
    for (const char* name : kGraphCounts)
      if (input.name == name && input.kind == ValueKind::kInt) symbols.graphs = input.size.expression;
  }
  return symbols;
}

}  // namespace

absl::StatusOr<Program> DecodeProgram(const std::string& form, const std::string& text, const Limits& limits) {
  const std::string what = absl::StrCat("models/", form, ".json");
  PF_RETURN_IF_ERROR(CheckDepth(what, text, limits));
  absl::Status versions;
  absl::StatusOr<Program> decoded = CatchJsonErrors<Program>(what.c_str(), text, [&](const Json& json) {
    Program program;
    program.form = form;
    ReadVersions(json, program);
    versions = CheckVersions(program);
    if (!versions.ok()) return program;
    const Json& module = At(json, "graph_module");
    const Json& graph = At(module, "graph");
    RefuseConstantInputs(At(module, "signature"));
    DecodedGraph nodes = DecodeGraph(graph, limits);
    ReadInputs(At(module, "signature"), nodes, Declared(graph, limits), program);
    ReadOutputs(At(module, "signature"), nodes, Declared(graph, limits), program);
    ReadRanges(json, program);
    program.symbols = FindBatchSymbols(program.inputs);
    program.graph = std::move(nodes.graph);
    Declared(graph, limits).TellTypes(program.graph);
    return program;
  });
  if (!versions.ok()) return Annotate(versions, what);
  return decoded;
}

absl::StatusOr<std::map<std::string, StoredTensor>> DecodeTensorTable(const std::string& what, const std::string& text,
                                                                      const Limits& limits) {
  using Table = std::map<std::string, StoredTensor>;
  PF_RETURN_IF_ERROR(CheckDepth(what, text, limits));
  return CatchJsonErrors<Table>(what.c_str(), text, [&](const Json& json) {
    Table table;
    for (const auto& [name, payload] : ObjectOf(At(json, "config"), "config").items()) {
      try {
        table.emplace(name, DecodeStoredTensor(payload, limits));
      } catch (const BadJsonField& error) {
        Refuse(absl::StrCat(Shorten(name), ": ", error.description));
      }
    }
    return table;
  });
}

}  // namespace permafrost::program
