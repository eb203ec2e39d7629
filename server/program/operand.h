// Arguments of a program's nodes as those that libtorch's schemas ask for.
// Threads: pure functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "program/code.h"
#include "program/program.h"

namespace permafrost::program {

// wanted: an argument of an operator's schema. Errors: InvalidArgument that names it and its type.
absl::StatusOr<Operand> BindArgument(const Argument& argument, const c10::Argument& wanted, const Graph& graph,
                                     c10::Device device);
// An argument of a function without a schema: numbers, values and text.
absl::StatusOr<Operand> BindPlain(const Argument& argument);

// A number as Python passes it where a tensor is taken: of no dimension, and of a type that gives way to others.
at::Tensor WrappedNumber(const c10::IValue& number);

}  // namespace permafrost::program
