// The operators that a program's file may use. All other operators are refused. This file also tells which nodes draw
// random numbers, and reads the arguments and the result of a node.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "program/program.h"

namespace permafrost::program {

enum class OperatorKind {
  kTensor,     // an operator of tensors, run by libtorch's dispatcher
  kRandom,     // an operator of tensors that draws from a generator
  kUntracked,  // an operator of tensors with an output whose size depends on values
  // An operator of tensors with an uninitialised output. The output is filled with 0, so that no program sees old
  // memory.
  kUninitialized,
  kSymbolic,  // arithmetic of sizes, or an assertion about them (symbolic.h)
  kNoGrad,    // a region with gradients on or off
  kAutocast,  // a region under autocast
};

// The parts of a target such as "torch.ops.aten.add.Tensor". ParseOperator returns nullopt for a target of another
// form.
struct OperatorName {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"; empty for "default"
};
std::optional<OperatorName> ParseOperator(std::string_view target);

// Returns true if the target is one of Permafrost's own operators. Rewritings put these operators into programs, but
// a program's file may not name them.
bool IsOwnOperator(std::string_view target);

// Returns the kind of an operator; nullopt if a program's file may not use the operator.
std::optional<OperatorKind> FindOperator(std::string_view target);

// Returns true if the node draws random numbers. Dropout does not draw in a form for evaluation.
bool Draws(const Node& node);

// Returns true if the node's operator writes to its first argument, as "scatter_add_" does.
bool WritesInPlace(const Node& node);

// Returns InvalidArgument if some node's operator is refused. The message names the first such node, its source line,
// and the other refused operators.
absl::Status CheckOperators(const Program& program);

// Returns the nodes that draw random numbers, in order, including nodes in regions. The pointers are valid as long as
// the program lives.
std::vector<const Node*> RandomNodes(const Program& program);

// Returns a name such as "aten::add"; empty for nodes that call no operator.
inline std::string OperatorOf(const Node& node) {
  const auto op = ParseOperator(node.target);
  return op ? op->name : std::string();
}

// Returns nullptr if the argument is left out.
inline const Argument* ArgumentOf(const Node& node, std::string_view name) {
  for (const NamedArgument& input : node.inputs)
    if (input.name == name) return &input.value;
  return nullptr;
}

// Returns kNoValue if the argument is left out or is not a value.
inline ValueIndex ValueOf(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  const auto* ref = argument == nullptr ? nullptr : std::get_if<Ref>(argument);
  return ref == nullptr ? kNoValue : ref->value;
}

// Returns the argument's number; `absent` if it is left out or None; nullopt if it is not a known number.
inline std::optional<int64_t> NumberOf(const Node& node, std::string_view name, int64_t absent) {
  const Argument* argument = ArgumentOf(node, name);
  if (argument == nullptr || std::holds_alternative<None>(*argument)) return absent;
  const auto* number = std::get_if<int64_t>(argument);
  return number == nullptr ? std::nullopt : std::optional(*number);
}
// Returns the argument's flag; `absent` if it is left out or None; nullopt if it is not a constant flag.
inline std::optional<bool> FlagOf(const Node& node, std::string_view name, std::optional<bool> absent) {
  const Argument* argument = ArgumentOf(node, name);
  if (argument == nullptr || std::holds_alternative<None>(*argument)) return absent;
  const auto* flag = std::get_if<bool>(argument);
  return flag == nullptr ? std::nullopt : std::optional(*flag);
}
// Returns an integer or real number as a double; nullopt if the argument is neither.
inline std::optional<double> RealOf(const Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&argument)) return static_cast<double>(*whole);
  return std::nullopt;
}
inline bool IsNumber(const Node& node, std::string_view name, int64_t absent, int64_t wanted) {
  return NumberOf(node, name, absent) == wanted;
}

// Returns true if an aten::embedding has the plain gradient for its table: each table row receives the sum of the
// gradients of its look-ups.
inline bool IsPlainEmbedding(const Node& node) {
  const auto is_off = [&](std::string_view name) { return FlagOf(node, name, false) == false; };
  return IsNumber(node, "padding_idx", -1, -1) && is_off("scale_grad_by_freq") && is_off("sparse");
}

// Returns an empty list if the argument is left out or is not a list of tensors.
inline std::vector<ValueIndex> ListOf(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  const auto* refs = argument == nullptr ? nullptr : std::get_if<Refs>(argument);
  return refs == nullptr ? std::vector<ValueIndex>() : refs->values;
}

// Returns the only output of a node; kNoValue if it has none, several, or a list.
inline ValueIndex ResultOf(const Node& node) {
  return node.outputs.size() == 1 && !node.outputs[0].is_list ? node.outputs[0].values[0] : kNoValue;
}

// Returns the values that a node takes as tensors or numbers, without kNoValue.
std::vector<ValueIndex> InputsOf(const Node& node);
// Returns all values that a node takes, including those in lists of sizes.
inline std::vector<ValueIndex> ValuesOf(const Node& node) {
  std::vector<ValueIndex> values = InputsOf(node);
  for (const NamedArgument& input : node.inputs) {
    const auto* ints = std::get_if<Ints>(&input.value);
    if (ints == nullptr) continue;
    for (const auto& number : ints->values)
      if (const auto* ref = std::get_if<Ref>(&number)) values.push_back(ref->value);
  }
  return values;
}

}  // namespace permafrost::program
