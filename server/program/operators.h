// The operators that a program may use; all others are refused. Tells which of them draw random numbers, too.
// Threads: pure functions.
#pragma once

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

// Returns InvalidArgument if a program may not use some node's operator. The message names the first such node, its
// line of the module, and the other operators that are refused.
absl::Status CheckOperators(const Program& program);

// Nodes that draw, in their order, those of regions included. They live as long as the program.
std::vector<const Node*> RandomNodes(const Program& program);

}  // namespace permafrost::program
