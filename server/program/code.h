// A graph bound to libtorch's operators: what Interpreter runs. Arguments of its nodes become those that libtorch's
// schemas ask for.
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

// The checks that libtorch's kernels leave out (guards.cc). Without them, arguments end the process, or reach memory
// that is none of a tensor's.

// Throws c10::Error. stack: the operator's arguments, in the order of its schema.
using Guard = void (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// name: "aten::div". Null for operators that libtorch checks.
Guard FindGuard(const std::string& name);

// Returns the bytes of the largest output that the arguments ask for, before it is allocated. A double, since they may
// exceed 64 bits.
using Estimate = double (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Null for views, for operators whose output is no larger than their largest argument, and for einsum, tensordot,
// pooling and convolution.
Estimate FindEstimate(const std::string& name);

// An argument of an operator, as it becomes an IValue.
struct Operand {
  enum class Kind {
    kConstant,         // `constant`
    kValue,            // a value as it is
    kWrapped,          // a number as a tensor of no dimension, as Python passes it
    kReal,             // an int or a double as a double
    kTensors,          // Tensor[]
    kOptionalTensors,  // Tensor?[]
    kInts,             // int[]
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<ValueIndex> values;  // kNoValue: left out
  std::vector<int64_t> numbers;    // kInts: where values[i] is kNoValue
};

struct Instruction {
  const Node* node = nullptr;
  OperatorKind kind = OperatorKind::kTensor;
  std::optional<c10::OperatorHandle> op;
  Guard guard = nullptr;        // called before `op`
  Estimate estimate = nullptr;  // of the bytes that `op` will take
  Symbolic symbolic = Symbolic::kSize;
  int64_t draw = -1;  // place among the program's nodes that draw
  int64_t norm = -1;  // place among its batch norms
  std::unique_ptr<const Code> region;
  at::ScalarType autocast_type = at::kBFloat16;
  bool enabled = false;  // gradients or autocast, in a region
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

// Binds the program's graph; it borrows the program. Errors: InvalidArgument that names the node.
absl::StatusOr<Bound> Bind(const Program& program, c10::Device device);

// A number as Python passes it where a tensor is taken: of no dimension, and of a type that gives way to others.
at::Tensor WrappedNumber(const c10::IValue& number);

}  // namespace permafrost::program
