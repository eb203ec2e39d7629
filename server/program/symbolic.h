// Arithmetic of sizes, with Python's semantics. Exported programs call these functions between operators of tensors.
// Threads: pure functions.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>
#include <vector>

namespace permafrost::program {

enum class Symbolic {
  kSize,
  kNumel,
  kStride,
  kAssert,
  kConstrain,
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kMod,
  kTrueDiv,
  kPow,
  kNeg,
  kPos,
  kMin,
  kMax,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot,
  kIfElse,
  kToInt,
  kToFloat,
  kTrunc,
  kSqrt,
};

// Returns the function that a node's target names, such as "_operator.mul", "torch.sym_float" or
// "torch.ops.aten.sym_size.int".
std::optional<Symbolic> FindSymbolic(std::string_view target);
// Returns the least and the largest number of arguments that the function takes.
std::pair<size_t, size_t> ArgumentsOf(Symbolic function);
// Returns the names of the arguments in the order that Evaluate expects. Returns an empty list if files give the
// function's arguments in that order anyway.
std::vector<std::string_view> NamesOf(Symbolic function);

// Returns the result: an int, a double or a bool, or None for an assertion. Throws c10::Error if an argument is of
// another kind, an assertion does not hold, a divisor is 0, or a number exceeds 64 bits.
c10::IValue Evaluate(Symbolic function, const std::vector<c10::IValue>& arguments);

}  // namespace permafrost::program
