// The operators that a program may use; all others are refused. Tells which of them draw random numbers, and reads the
// arguments and the result of a node.
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
  kTensor,         // an operator of tensors, run by libtorch's dispatcher
  kRandom,         // the same, and draws from a generator
  kUntracked,      // the same, and has an output whose size depends on values
  kUninitialized,  // an operator of tensors whose output is zeroed, so that no program sees what others left in memory
  kSymbolic,       // arithmetic of sizes, or an assertion about them (symbolic.h)
  kNoGrad,         // a region with gradients on or off
  kAutocast,       // a region in another type
};

// "torch.ops.aten.add.Tensor" in parts. Nothing for targets of another form.
struct OperatorName {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"; empty for "default"
};
std::optional<OperatorName> ParseOperator(std::string_view target);

// Tells whether a target is an operator of Permafrost's own, which rewritings put into programs. A file may not name
// one.
bool IsOwnOperator(std::string_view target);

// Nothing where a program's file may not use it.
std::optional<OperatorKind> FindOperator(std::string_view target);

// Tells whether a node draws numbers: dropout in a form for evaluation does not.
bool Draws(const Node& node);

// Tells whether a node's operator writes to its first argument, as "scatter_add_" does.
bool WritesInPlace(const Node& node);

// Returns InvalidArgument if a program may not use some node's operator. The message names the first such node, its
// line of the module, and the other operators that are refused.
absl::Status CheckOperators(const Program& program);

// Nodes that draw, in their order, those of regions included. They live as long as the program.
std::vector<const Node*> RandomNodes(const Program& program);

// "aten::add"; empty for nodes that call no operator.
inline std::string OperatorOf(const Node& node) {
  const auto op = ParseOperator(node.target);
  return op ? op->name : std::string();
}

// nullptr where the argument is left out.
inline const Argument* ArgumentOf(const Node& node, std::string_view name) {
  for (const NamedArgument& input : node.inputs)
    if (input.name == name) return &input.value;
  return nullptr;
}

// kNoValue where the argument is no value.
inline ValueIndex ValueOf(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  const auto* ref = argument == nullptr ? nullptr : std::get_if<Ref>(argument);
  return ref == nullptr ? kNoValue : ref->value;
}

// `absent` where the argument is left out or None; nothing where it is no known number.
inline std::optional<int64_t> NumberOf(const Node& node, std::string_view name, int64_t absent) {
  const Argument* argument = ArgumentOf(node, name);
  if (argument == nullptr || std::holds_alternative<None>(*argument)) return absent;
  const auto* number = std::get_if<int64_t>(argument);
  return number == nullptr ? std::nullopt : std::optional(*number);
}
// Returns the flag; `absent` where it is left out or None; nothing where it is no constant.
inline std::optional<bool> FlagOf(const Node& node, std::string_view name, std::optional<bool> absent) {
  const Argument* argument = ArgumentOf(node, name);
  if (argument == nullptr || std::holds_alternative<None>(*argument)) return absent;
  const auto* flag = std::get_if<bool>(argument);
  return flag == nullptr ? std::nullopt : std::optional(*flag);
}
// Returns the number, whole or real; nothing where it is none.
inline std::optional<double> RealOf(const Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&argument)) return static_cast<double>(*whole);
  return std::nullopt;
}
inline bool IsNumber(const Node& node, std::string_view name, int64_t absent, int64_t wanted) {
  return NumberOf(node, name, absent) == wanted;
}

// Empty where the argument is no list of tensors.
inline std::vector<ValueIndex> ListOf(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  const auto* refs = argument == nullptr ? nullptr : std::get_if<Refs>(argument);
  return refs == nullptr ? std::vector<ValueIndex>() : refs->values;
}

// The only output of a node; kNoValue: it has none, or more.
inline ValueIndex ResultOf(const Node& node) {
  return node.outputs.size() == 1 && !node.outputs[0].is_list ? node.outputs[0].values[0] : kNoValue;
}

// Values that a node takes, kNoValue left out.
std::vector<ValueIndex> InputsOf(const Node& node);
// All values that a node takes, also those among sizes.
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
