// Programs that tests build node by node.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "program/load.h"
#include "program/program.h"

namespace permafrost::train {

// A form that a test builds node by node.
class FormBuilder {
 public:
  explicit FormBuilder(std::string name) { program_.form = std::move(name); }

  program::ValueIndex Value(const std::string& name, program::ValueKind kind = program::ValueKind::kTensor) {
    program_.graph.values.push_back({name, kind});
    return static_cast<program::ValueIndex>(program_.graph.values.size()) - 1;
  }
  program::ValueIndex State(program::StateKind kind, const std::string& name, const at::Tensor& tensor,
                            bool persistent = true) {
    program::State state;
    state.kind = kind;
    state.name = name;
    state.value = Value(name);
    state.persistent = persistent;
    program_.graph.inputs.push_back(state.value);
    program_.state.push_back(state);
    state_.push_back(tensor);
    return state.value;
  }
  program::ValueIndex Input(const std::string& name, program::DType dtype, std::vector<program::Size> sizes) {
    program::Input input{
        .name = name, .value = Value(name), .kind = program::ValueKind::kTensor, .type = {}, .size = {}};
    input.type = {.dtype = dtype, .sizes = std::move(sizes), .requires_grad = false};
    return Add(input);
  }
  program::ValueIndex Number(const std::string& name) {
    program::Input input{.name = name,
                         .value = Value(name, program::ValueKind::kInt),
                         .kind = program::ValueKind::kInt,
                         .type = {},
                         .size = {}};
    input.size.expression = "G";
    return Add(input);
  }
  program::ValueIndex Node(const std::string& name, const std::string& op, std::vector<program::NamedArgument> inputs) {
    program::Node node;
    node.name = name;
    node.target = "torch.ops.aten." + op;
    node.inputs = std::move(inputs);
    const program::ValueIndex value = Value(name);
    node.outputs.push_back({.values = {value}, .is_list = false});
    program_.graph.nodes.push_back(std::move(node));
    return value;
  }
  program::Form Return(std::vector<program::ValueIndex> outputs) {
    program_.graph.outputs = outputs;
    program_.outputs = std::move(outputs);
    return {.program = std::make_shared<const program::Program>(std::move(program_)), .state = std::move(state_)};
  }

 private:
  program::ValueIndex Add(const program::Input& input) {
    program_.graph.inputs.push_back(input.value);
    program_.inputs.push_back(input);
    return input.value;
  }

  program::Program program_;
  std::vector<at::Tensor> state_;
};

inline program::Size Symbol(const std::string& name) { return {.number = 0, .expression = name}; }
inline program::Size Known(int64_t number) { return {.number = number, .expression = ""}; }

// Changes what a program returns, or adds an output.
using Change = std::function<program::ValueIndex(FormBuilder& form, program::ValueIndex prediction)>;

}  // namespace permafrost::train
