// Programs over nodes and edges that tests build themselves, with the tensor types that an export would declare.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "program/synthetic.h"

namespace permafrost::program {

// The float64 inputs are h [N, 16], pos [N, 3], e [E, 3], table [4, 16], large [2000, 16], weight [5, 16] and bias
// [5]. The index inputs are sources, targets and kinds [E], and others [N].
class TypedWriter {
 public:
  static Size Nodes() { return {.number = 0, .expression = "N"}; }
  static Size Edges() { return {.number = 0, .expression = "E"}; }
  static Size Of(int64_t number) { return {.number = number, .expression = {}}; }

  TypedWriter() {
    program_.symbols = {.nodes = "N", .edges = "E", .graphs = {}};
    h = Input("h", {Nodes(), Of(16)});
    pos = Input("pos", {Nodes(), Of(3)});
    e = Input("e", {Edges(), Of(3)});
    table = Input("table", {Of(4), Of(16)});
    large = Input("large", {Of(2000), Of(16)});
    weight = Weight(16);
    bias = Input("bias", {Of(5)});
    sources = Input("sources", {Edges()}, DType::kInt64);
    targets = Input("targets", {Edges()}, DType::kInt64);
    kinds = Input("kinds", {Edges()}, DType::kInt64);
    others = Input("others", {Nodes()}, DType::kInt64);
  }

  // Returns values for the program's inputs. They depend on the program and the sizes alone, and the floats require
  // gradients.
  static std::vector<at::Tensor> Batch(const Program& program, int64_t nodes, int64_t edges) {
    at::manual_seed(3);
    std::vector<at::Tensor> tensors;
    for (const program::Input& input : program.inputs) {
      std::vector<int64_t> sizes;
      for (const Size& size : input.type.sizes) {
        const int64_t known = size.expression == "N" ? nodes : edges;
        sizes.push_back(size.expression.empty() ? size.number : known);
      }
      if (input.type.dtype == DType::kFloat64) {
        tensors.push_back(at::randn(sizes, at::kDouble).set_requires_grad(true));
      } else {
        tensors.push_back(at::randint(input.name == "kinds" ? 4 : nodes, sizes, at::kLong));
      }
    }
    return tensors;
  }

  // Adds an input [5, columns].
  ValueIndex Weight(int64_t columns) {
    return Input("weight_" + std::to_string(program_.inputs.size()), {Of(5), Of(columns)});
  }
  // Adds an input [rows, columns].
  ValueIndex Table(int64_t rows, int64_t columns) {
    return Input("table_" + std::to_string(program_.inputs.size()), {Of(rows), Of(columns)});
  }
  // Adds an input [size].
  ValueIndex Vector(int64_t size) { return Input("vector_" + std::to_string(program_.inputs.size()), {Of(size)}); }
  ValueIndex Select(ValueIndex self, ValueIndex index, int64_t dim = 0, Size rows = Edges()) {
    std::vector<Size> sizes = SizesOf(self);
    sizes[0] = std::move(rows);
    return Node("index_select.default", {{"self", Ref{self}}, {"dim", dim}, {"index", Ref{index}}}, sizes);
  }
  ValueIndex Index(ValueIndex self, ValueIndex index) {
    return Node("index.Tensor", {{"self", Ref{self}}, {"indices", Refs{{index}}}}, {Edges(), SizesOf(self)[1]});
  }
  ValueIndex Embedding(ValueIndex rows, ValueIndex index, std::vector<NamedArgument> more = {}) {
    std::vector<NamedArgument> inputs = {{"weight", Ref{rows}}, {"indices", Ref{index}}};
    inputs.insert(inputs.end(), more.begin(), more.end());
    return Node("embedding.default", std::move(inputs), {Edges(), SizesOf(rows)[1]});
  }
  ValueIndex Linear(ValueIndex rows, ValueIndex map, ValueIndex added) {
    std::vector<NamedArgument> inputs = {{"input", Ref{rows}}, {"weight", Ref{map}}};
    if (added != kNoValue) inputs.push_back({"bias", Ref{added}});
    std::vector<Size> sizes = SizesOf(rows);
    sizes.back() = Of(5);
    return Node("linear.default", std::move(inputs), sizes);
  }
  // Concatenates along the last dimension.
  ValueIndex Cat(std::vector<ValueIndex> parts) {
    std::vector<Size> sizes = SizesOf(parts[0]);
    sizes.back().number = 0;
    for (const ValueIndex part : parts) sizes.back().number += SizesOf(part).back().number;
    return Node("cat.default", {{"tensors", Refs{std::move(parts)}}, {"dim", int64_t{-1}}}, sizes);
  }
  // Concatenates rows of edges and then rows of nodes into [N + E, columns].
  ValueIndex Stacked(std::vector<ValueIndex> parts) {
    const Size rows{.number = 0, .expression = "N + E"}, columns = SizesOf(parts[0])[1];
    return Node("cat.default", {{"tensors", Refs{std::move(parts)}}}, {rows, columns});
  }
  // Stacks into [parts, ...].
  ValueIndex Stack(const std::vector<ValueIndex>& parts) {
    std::vector<Size> sizes = SizesOf(parts[0]);
    sizes.insert(sizes.begin(), Of(static_cast<int64_t>(parts.size())));
    return Node("stack.default", {{"tensors", Refs{parts}}, {"dim", int64_t{0}}}, sizes);
  }
  ValueIndex Sum(ValueIndex a, ValueIndex b) { return Two("add.Tensor", a, b); }
  ValueIndex Sub(ValueIndex a, ValueIndex b) { return Two("sub.Tensor", a, b); }
  ValueIndex Times(ValueIndex a, double factor) {
    return Node("mul.Tensor", {{"self", Ref{a}}, {"other", factor}}, SizesOf(a));
  }
  ValueIndex Neg(ValueIndex a) { return Unary("neg.default", a); }
  ValueIndex Relu(ValueIndex a) { return Unary("relu.default", a); }
  ValueIndex Unary(const std::string& op, ValueIndex a) { return Shape(op, a, SizesOf(a), {}); }
  ValueIndex Shape(const std::string& op, ValueIndex self, std::vector<Size> sizes, std::vector<NamedArgument> more,
                   const std::string& name = "self") {
    std::vector<NamedArgument> inputs = {{name, Ref{self}}};
    inputs.insert(inputs.end(), more.begin(), more.end());
    return Node(op, std::move(inputs), std::move(sizes), program_.graph.values[self].type->dtype);
  }
  void Write(ValueIndex value) { Unary("zero_.default", value); }
  std::vector<Size> SizesOf(ValueIndex value) const { return program_.graph.values[value].type->sizes; }

  std::shared_ptr<const Program> Return(std::vector<ValueIndex> outputs) {
    program_.graph.outputs = outputs;
    program_.outputs = std::move(outputs);
    return std::make_shared<const Program>(program_);
  }

  ValueIndex h, pos, e, table, large, weight, bias, sources, targets, kinds, others;

 private:
  ValueIndex Value(const std::string& name, std::vector<Size> sizes, DType dtype) {
    const TensorType type{.dtype = dtype, .sizes = std::move(sizes), .requires_grad = false};
    program_.graph.values.push_back({name, ValueKind::kTensor, type});
    return static_cast<ValueIndex>(program_.graph.values.size()) - 1;
  }
  ValueIndex Input(const std::string& name, std::vector<Size> sizes, DType dtype = DType::kFloat64) {
    program::Input input{
        .name = name, .value = Value(name, std::move(sizes), dtype), .kind = {}, .type = {}, .size = {}};
    input.type = *program_.graph.values[input.value].type;
    program_.graph.inputs.push_back(input.value);
    program_.inputs.push_back(input);
    return input.value;
  }
  ValueIndex Node(const std::string& op, std::vector<NamedArgument> inputs, std::vector<Size> sizes,
                  DType dtype = DType::kFloat64) {
    const std::string name = "node_" + std::to_string(program_.graph.nodes.size());
    const ValueIndex value = Value(name, std::move(sizes), dtype);
    program_.graph.nodes.push_back({.name = name,
                                    .target = "torch.ops.aten." + op,
                                    .inputs = std::move(inputs),
                                    .outputs = {{.values = {value}, .is_list = false}},
                                    .source = {}});
    return value;
  }
  ValueIndex Two(const std::string& op, ValueIndex a, ValueIndex b) {
    return Node(op, {{"self", Ref{a}}, {"other", Ref{b}}}, SizesOf(a));
  }

  Program program_;
};

}  // namespace permafrost::program
