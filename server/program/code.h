// A graph bound to libtorch's operators, as Interpreter runs it. The arguments of its nodes become the arguments that
// libtorch's schemas ask for.
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

// The checks that libtorch's kernels leave out (guards.cc). Without them, some arguments end the process, or make a
// kernel access memory outside its tensors.

// Checks an operator's arguments, which `stack` holds in the order of the schema. Throws c10::Error.
using Guard = void (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Returns the guard of an operator such as "aten::div"; null for operators that libtorch checks itself.
Guard FindGuard(const std::string& name);

// Returns the bytes of the largest output for these arguments, before it is allocated. The result is a double, since
// it may exceed 64 bits.
using Estimate = double (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Returns the estimate of an operator. Returns null for views, for operators whose output is no larger than their
// largest argument, and for einsum, tensordot, pooling and convolution.
Estimate FindEstimate(const std::string& name);

// An argument of an operator, and the way in which it becomes an IValue.
struct Operand {
  enum class Kind {
    kConstant,         // `constant`
    kValue,            // a value, passed as it is
    kWrapped,          // a number, passed as a tensor without dimensions, as Python does
    kReal,             // an int or a double, passed as a double
    kTensors,          // Tensor[]
    kOptionalTensors,  // Tensor?[]
    kInts,             // int[]
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<ValueIndex> values;  // kNoValue: the argument is left out
  std::vector<int64_t> numbers;    // kInts: the numbers at the places where values[i] is kNoValue
};

struct Instruction {
  const Node* node = nullptr;
  OperatorKind kind = OperatorKind::kTensor;
  std::optional<c10::OperatorHandle> op;
  Guard guard = nullptr;        // called before `op`
  Estimate estimate = nullptr;  // estimates the bytes that `op` will take
  Symbolic symbolic = Symbolic::kSize;
  int64_t draw = -1;  // index among the program's nodes that draw; -1: does not draw
  int64_t norm = -1;  // index among the program's batch norms; -1: is no batch norm
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
  std::set<ValueIndex> written;  // inputs of the graph that an operator writes to
};

// Binds the program's graph. The result borrows the program. Errors: InvalidArgument that names the node.
absl::StatusOr<Bound> Bind(const Program& program, c10::Device device);

// Returns a number as the tensor that Python passes for it. The tensor has no dimensions, and in type promotion its
// type yields to the types of other tensors.
at::Tensor WrappedNumber(const c10::IValue& number);

}  // namespace permafrost::program
