// Checks that libtorch's kernels leave out. Without them, arguments end the process, or reach memory that is none of a
// tensor's.
// Threads: pure functions.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>

namespace permafrost::program {

// Throws c10::Error. stack: the operator's arguments, in the order of its schema.
using Guard = void (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// name: "aten::div". Null for operators that libtorch checks.
Guard FindGuard(const std::string& name);

// Bytes of the largest output that the arguments ask for, told before memory is taken for it. A double, since it may be
// beyond 64 bits.
using Estimate = double (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Null for operators whose outputs are no larger than their largest argument, or views; and for einsum and tensordot.
Estimate FindEstimate(const std::string& name);

// The argument of that name; null where the operator has none.
const c10::IValue* ArgumentNamed(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, const char* name);

}  // namespace permafrost::program
