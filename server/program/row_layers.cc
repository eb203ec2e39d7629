#include "program/row_layers.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "program/node_access.h"

namespace permafrost::program {
namespace {

class RowLayersWriter {
 public:
  RowLayersWriter(const Program& program, const RowLayersOptions& options)
      : options_(options), made_{.program = program, .linears = 0, .norms = 0} {
    std::vector<Node>& nodes = made_.program.graph.nodes;
    users_.resize(program.graph.values.size());
    const auto use = [&](ValueIndex value, size_t node) {
      if (value != kNoValue) users_[value].push_back(node);
    };
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const ValueIndex value : ValuesOf(nodes[i])) use(value, i);
    for (const std::vector<ValueIndex>* outputs : {&program.graph.outputs, &program.outputs})
      for (const ValueIndex output : *outputs) use(output, nodes.size());
    for (const BufferUpdate& update : program.updates) use(update.value, nodes.size());
  }

  std::optional<RowLayers> Run() {
    std::vector<Node>& nodes = made_.program.graph.nodes;
    std::vector<char> merged(nodes.size(), 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::string op = OperatorOf(nodes[i]);
      const bool linear = op == "aten::linear" && IsLinear(nodes[i]);
      const bool norm = options_.norms && op == "aten::batch_norm" && IsNorm(nodes[i]);
      if (!linear && !norm) continue;
      const std::optional<size_t> relu = ReluBehind(nodes[i]);
      if (linear) {
        ++made_.linears;
        SetCall(nodes[i], "row_linear", {"input", "weight", "bias"}, relu.has_value());
      } else {
        ++made_.norms;
        SetCall(nodes[i], "row_norm", {"input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"},
                relu.has_value());
      }
      if (!relu) continue;
      nodes[i].outputs = nodes[*relu].outputs;
      merged[*relu] = 1;
    }
    if (made_.linears + made_.norms == 0) return std::nullopt;
    size_t place = 0;
    std::erase_if(nodes, [&](const Node&) { return merged[place++] != 0; });
    return std::move(made_);
  }

 private:
  const TensorType* TypeOf(ValueIndex value) const {
    if (value == kNoValue) return nullptr;
    const std::optional<TensorType>& type = made_.program.graph.values[value].type;
    return type && IsReal(type->dtype) ? &*type : nullptr;
  }
  // Returns whether the argument is a tensor of `of`'s type with `dimensions` dimensions.
  bool HasType(const Node& node, std::string_view argument, const TensorType& of, size_t dimensions) const {
    const TensorType* type = TypeOf(ValueOf(node, argument));
    return type != nullptr && type->dtype == of.dtype && type->sizes.size() == dimensions;
  }

  bool IsLinear(const Node& node) const {
    const TensorType* x = TypeOf(ValueOf(node, "input"));
    if (x == nullptr || x->sizes.empty() || ResultOf(node) == kNoValue || !HasType(node, "weight", *x, 2)) return false;
    const Argument* bias = ArgumentOf(node, "bias");
    if (bias == nullptr || std::holds_alternative<None>(*bias)) return true;
    // A bias of one number for all columns is left to libtorch: row_linear refuses it.
    return HasType(node, "bias", *x, 1) &&
           TypeOf(ValueOf(node, "bias"))->sizes[0] == TypeOf(ValueOf(node, "weight"))->sizes[0];
  }

  bool IsNorm(const Node& node) const {
    const TensorType* x = TypeOf(ValueOf(node, "input"));
    if (x == nullptr || x->sizes.size() != 2 || ResultOf(node) == kNoValue || FlagOf(node, "training", false) != true) {
      return false;
    }
    constexpr std::string_view kColumns[] = {"weight", "bias", "running_mean", "running_var"};
    constexpr std::string_view kNumbers[] = {"momentum", "eps"};
    return std::ranges::all_of(kColumns, [&](std::string_view name) { return HasType(node, name, *x, 1); }) &&
           std::ranges::all_of(kNumbers, [&](std::string_view name) {
             const Argument* number = ArgumentOf(node, name);
             return number != nullptr && std::holds_alternative<double>(*number);
           });
  }

  // Returns the ReLU that is the only user of the node's result.
  std::optional<size_t> ReluBehind(const Node& node) const {
    const std::vector<Node>& nodes = made_.program.graph.nodes;
    const std::vector<size_t>& users = users_[ResultOf(node)];
    if (users.size() != 1 || users[0] == nodes.size()) return std::nullopt;
    const std::string op = OperatorOf(nodes[users[0]]);
    const bool relu = (op == "aten::relu" || op == "aten::relu_") && ResultOf(nodes[users[0]]) != kNoValue;
    return relu ? std::optional(users[0]) : std::nullopt;
  }

  static void SetCall(Node& node, const std::string& op, const std::vector<std::string>& arguments, bool relu) {
    std::vector<NamedArgument> inputs;
    for (const std::string& name : arguments) {
      const Argument* argument = ArgumentOf(node, name);
      inputs.push_back({name == "input" ? "x" : name, argument == nullptr ? Argument(None()) : *argument});
    }
    inputs.push_back({"relu", relu});
    node.inputs = std::move(inputs);
    node.target = "torch.ops.permafrost." + op + ".default";
  }

  const RowLayersOptions options_;
  RowLayers made_;
  // The nodes that read each value; the place after the last stands for a use outside the graph.
  std::vector<std::vector<size_t>> users_;
};

}  // namespace

std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options) {
  return RowLayersWriter(program, options).Run();
}

bool HasFloat32Linears(const Program& program) {
  return std::ranges::any_of(program.graph.nodes, [&](const Node& node) {
    const ValueIndex weight = ValueOf(node, "weight");
    if (weight == kNoValue || OperatorOf(node) != "permafrost::row_linear") return false;
    const std::optional<TensorType>& type = program.graph.values[weight].type;
    return type && type->dtype == DType::kFloat32;
  });
}

}  // namespace permafrost::program
