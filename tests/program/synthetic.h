// Programs that tests build without Python, with nodes that torch.export would not write.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace permafrost::program {

class Builder {
 public:
  // Adds a one-dimensional input, of floats by default, of any size.
  ValueIndex Input(const std::string& name, DType dtype = DType::kFloat32) {
    const ValueIndex value = Value(name);
    program_.graph.inputs.push_back(value);
    program_.inputs.push_back(
        {.name = name, .value = value, .type = {.dtype = dtype, .sizes = {{.expression = "Any(" + name + ")"}}}});
    return value;
  }
  ValueIndex Buffer(const std::string& name) {
    const ValueIndex value = Value(name);
    program_.graph.inputs.push_back(value);
    program_.state.push_back({.kind = StateKind::kBuffer, .name = name, .value = value});
    return value;
  }
  ValueIndex Value(const std::string& name) {
    program_.graph.values.push_back({name, ValueKind::kTensor});
    return static_cast<ValueIndex>(program_.graph.values.size()) - 1;
  }
  // Calls torch.ops.aten.TARGET and returns its one output.
  ValueIndex Call(const std::string& target, std::vector<NamedArgument> inputs) {
    const ValueIndex value = Value(target + std::to_string(program_.graph.nodes.size()));
    Node node{.name = "node", .target = target, .inputs = std::move(inputs), .outputs = {{.values = {value}}}};
    if (target.find('.') != std::string::npos && target.find("torch.") != 0) node.target = "torch.ops.aten." + target;
    program_.graph.nodes.push_back(std::move(node));
    return value;
  }
  // Makes the last node return a list of two values.
  void ReturnTwo() {
    Output& output = program_.graph.nodes.back().outputs[0];
    output.is_list = true;
    output.values.push_back(Value("second"));
  }
  std::shared_ptr<const Program> Return(ValueIndex value) {
    program_.graph.outputs = {value};
    program_.outputs = {value};
    return std::make_shared<const Program>(program_);
  }

 private:
  Program program_;
};

inline Ints IntsOf(const std::vector<int64_t>& numbers) {
  Ints ints;
  for (const int64_t number : numbers) ints.values.emplace_back(number);
  return ints;
}

}  // namespace permafrost::program
