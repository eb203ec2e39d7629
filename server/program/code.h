// A graph bound to libtorch's operators, as Interpreter runs it. Binding converts the arguments of nodes to the types
// that libtorch's schemas require.
// Threads: plain values and pure functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "program/operators.h"
#include "program/program.h"
#include "program/symbolic.h"

namespace permafrost::program {

struct Code;

// Guards do the checks that libtorch's kernels lack (guards.cc). Without these checks, some arguments crash the
// process or make a kernel access memory outside its tensors.

// Checks an operator's arguments, which `stack` holds in the order of the schema. Throws c10::Error if it refuses
// them.
using Guard = void (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Returns the guard of an operator such as "aten::div". Returns null if libtorch itself checks the operator's
// arguments.
Guard FindGuard(const std::string& name);

// A function that returns the bytes of an operator's largest output for these arguments. It is called before the
// output is allocated. The result is a double, since it may exceed 64 bits.
using Estimate = double (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Returns the Estimate function of an operator. Returns null for views, for operators whose output is no larger than
// their largest argument, and for einsum, tensordot, pooling and convolution.
Estimate FindEstimate(const std::string& name);

// A description of how an instruction makes one argument of its operator, an IValue.
struct Operand {
  enum class Kind {
    kConstant,         // `constant`
    kValue,            // a value, passed unchanged
    kWrapped,          // a number, passed as a tensor without dimensions, as Python does
    kReal,             // an int or a double, passed as a double
    kTensors,          // Tensor[]
    kOptionalTensors,  // Tensor?[]
    kInts,             // int[]
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<ValueIndex> values;  // kNoValue: the argument is left out
  std::vector<int64_t> numbers;    // for kInts: element i of the list if values[i] is kNoValue
};

struct Instruction {
  const Node* node = nullptr;
  OperatorKind kind = OperatorKind::kTensor;
  std::optional<c10::OperatorHandle> op;
  Guard guard = nullptr;        // called before `op`
  Estimate estimate = nullptr;  // estimates the bytes of the output of `op`
  Symbolic symbolic = Symbolic::kSize;
  int64_t draw = -1;  // position among the nodes that draw; -1: the node does not draw
  int64_t norm = -1;  // position among the batch norms; -1: the node is no batch norm
  std::unique_ptr<const Code> region;
  at::ScalarType autocast_type = at::kBFloat16;
  bool enabled = false;  // for a region: true if gradients or autocast are on
  std::vector<Operand> operands;
  std::vector<ValueIndex> dead;  // values that no later instruction uses
};

struct Code {
  const Graph* graph = nullptr;
  std::vector<Instruction> instructions;
};

struct Bound {
  std::unique_ptr<const Code> code;
  std::set<ValueIndex> written;  // the graph's inputs to which operators write
};

// Binds the program's graph. The result borrows the program. Errors: InvalidArgument that names the node.
absl::StatusOr<Bound> Bind(const Program& program, c10::Device device);

// Returns the tensor that PyTorch's Python passes in place of a number. It has no dimensions, and in type promotion
// its type yields to the types of other tensors.
at::Tensor WrappedNumber(const c10::IValue& number);

}  // namespace permafrost::program
