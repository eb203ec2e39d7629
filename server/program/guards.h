// Checks that libtorch's kernels leave out. Without them, arguments end the process, or reach memory that is none of a
// tensor's. Estimates of the memory that an operator will take.
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

// Returns the bytes of the largest output that the arguments ask for, before it is allocated. A double, since they may
// exceed 64 bits.
using Estimate = double (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);
// Null for views, for operators whose output is no larger than their largest argument, and for einsum, tensordot,
// pooling and convolution.
Estimate FindEstimate(const std::string& name);

}  // namespace permafrost::program
