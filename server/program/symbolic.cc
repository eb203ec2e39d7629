#include "program/symbolic.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/text.h"

namespace permafrost::program {
namespace {

using c10::IValue;

constexpr struct {
  std::string_view target;
  Symbolic function;
  size_t least, most;  // bounds of the number of arguments
} kFunctions[] = {
    {"torch.ops.aten.sym_size.int", Symbolic::kSize, 2, 2},
    {"torch.ops.aten.sym_numel.default", Symbolic::kNumel, 1, 1},
    {"torch.ops.aten.sym_stride.int", Symbolic::kStride, 2, 2},
    {"torch.ops.aten._assert_scalar.default", Symbolic::kAssert, 1, 2},
    {"torch.ops.aten.sym_constrain_range.default", Symbolic::kConstrain, 1, 3},
    {"torch.ops.aten.sym_constrain_range_for_size.default", Symbolic::kConstrain, 1, 3},
    {"_operator.add", Symbolic::kAdd, 2, 2},
    {"_operator.sub", Symbolic::kSub, 2, 2},
    {"_operator.mul", Symbolic::kMul, 2, 2},
    {"_operator.floordiv", Symbolic::kFloorDiv, 2, 2},
    {"_operator.mod", Symbolic::kMod, 2, 2},
    {"_operator.truediv", Symbolic::kTrueDiv, 2, 2},
    {"_operator.pow", Symbolic::kPow, 2, 2},
    {"_operator.neg", Symbolic::kNeg, 1, 1},
    {"_operator.pos", Symbolic::kPos, 1, 1},
    {"_operator.eq", Symbolic::kEq, 2, 2},
    {"_operator.ne", Symbolic::kNe, 2, 2},
    {"_operator.lt", Symbolic::kLt, 2, 2},
    {"_operator.le", Symbolic::kLe, 2, 2},
    {"_operator.gt", Symbolic::kGt, 2, 2},
    {"_operator.ge", Symbolic::kGe, 2, 2},
    {"_operator.and_", Symbolic::kAnd, 2, 2},
    {"_operator.or_", Symbolic::kOr, 2, 2},
    {"math.trunc", Symbolic::kTrunc, 1, 1},
    {"torch.sym_int", Symbolic::kToInt, 1, 1},
    {"torch.sym_float", Symbolic::kToFloat, 1, 1},
    {"torch.sym_not", Symbolic::kNot, 1, 1},
    {"torch.sym_ite", Symbolic::kIfElse, 3, 3},
    {"torch.sym_min", Symbolic::kMin, 2, 2},
    {"torch.sym_max", Symbolic::kMax, 2, 2},
    {"torch._sym_sqrt", Symbolic::kSqrt, 1, 1},
    {"torch.sym_sqrt", Symbolic::kSqrt, 1, 1},
};

bool IsInt(const IValue& value) { return value.isInt() || value.isBool(); }
int64_t Int(const IValue& value) { return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt(); }
double Real(const IValue& value) { return IsInt(value) ? static_cast<double>(Int(value)) : value.toDouble(); }
bool Truth(const IValue& value) { return IsInt(value) ? Int(value) != 0 : Real(value) != 0; }

template <class Operation>
int64_t Checked(const IValue& a, const IValue& b, const Operation& operation) {
  int64_t result = 0;
  TORCH_CHECK(!operation(Int(a), Int(b), &result), "a size is beyond 64 bits: of ", Int(a), " and ", Int(b));
  return result;
}

// Divides and rounds down, as Python does.
IValue FloorDiv(const IValue& a, const IValue& b) {
  if (!IsInt(a) || !IsInt(b)) {
    TORCH_CHECK(Real(b) != 0, "a division by 0");
    return std::floor(Real(a) / Real(b));
  }
  TORCH_CHECK(Int(b) != 0, "a division by 0");
  const bool fits = Int(a) != INT64_MIN || Int(b) != -1;
  TORCH_CHECK(fits, "a size is beyond 64 bits");
  const int64_t quotient = Int(a) / Int(b);
  return Int(a) % Int(b) != 0 && (Int(a) < 0) != (Int(b) < 0) ? quotient - 1 : quotient;
}
// Returns the remainder, which has the divisor's sign as in Python.
IValue Mod(const IValue& a, const IValue& b) {
  TORCH_CHECK(IsInt(a) && IsInt(b) && Int(b) != 0, "a remainder of a division by 0, or of numbers that are no ints");
  if (Int(b) == -1) return int64_t{0};
  const int64_t rest = Int(a) % Int(b);
  return rest != 0 && (rest < 0) != (Int(b) < 0) ? rest + Int(b) : rest;
}
IValue Pow(const IValue& a, const IValue& b) {
  if (!IsInt(a) || !IsInt(b) || Int(b) < 0) return std::pow(Real(a), Real(b));
  TORCH_CHECK(Int(b) < 64 || (Int(a) >= -1 && Int(a) <= 1), "a size is beyond 64 bits: ", Int(a), " to the ", Int(b));
  int64_t result = 1;
  for (int64_t i = 0; i < std::min<int64_t>(Int(b), 64 + (Int(b) & 1)); ++i) {
    TORCH_CHECK(!__builtin_mul_overflow(result, Int(a), &result), "a size is beyond 64 bits");
  }
  return result;
}
IValue Truncated(const IValue& a) {
  if (IsInt(a)) return Int(a);
  TORCH_CHECK(std::abs(Real(a)) < 9.2e18, "a size is beyond 64 bits: ", Real(a));
  return static_cast<int64_t>(Real(a));
}

template <class Compare>
bool Compared(const IValue& a, const IValue& b, const Compare& compare) {
  return IsInt(a) && IsInt(b) ? compare(Int(a), Int(b)) : compare(Real(a), Real(b));
}
bool Less(const IValue& a, const IValue& b) {
  return Compared(a, b, [](auto x, auto y) { return x < y; });
}

// Returns an int if both operands are ints, and a double otherwise.
IValue Arithmetic(Symbolic function, const IValue& a, const IValue& b) {
  const bool ints = IsInt(a) && IsInt(b);
  switch (function) {
    case Symbolic::kAdd:
      if (!ints) return Real(a) + Real(b);
      return Checked(a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); });
    case Symbolic::kSub:
      if (!ints) return Real(a) - Real(b);
      return Checked(a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); });
    default:
      if (!ints) return Real(a) * Real(b);
      return Checked(a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); });
  }
}

IValue AssertRange(const std::vector<IValue>& arguments) {
  const bool low = arguments.size() < 2 || arguments[1].isNone() || !Less(arguments[0], arguments[1]);
  const bool high = arguments.size() < 3 || arguments[2].isNone() || !Less(arguments[2], arguments[0]);
  TORCH_CHECK(low && high, "an assertion of the program does not hold: ", Real(arguments[0]), " is out of its range");
  return {};
}

}  // namespace

std::optional<Symbolic> FindSymbolic(std::string_view target) {
  for (const auto& row : kFunctions)
    if (row.target == target) return row.function;
  return std::nullopt;
}

std::vector<std::string_view> NamesOf(Symbolic function) {
  switch (function) {
    case Symbolic::kSize:
    case Symbolic::kStride:
      return {"self", "dim"};
    case Symbolic::kNumel:
      return {"self"};
    case Symbolic::kAssert:
      return {"self", "assert_msg"};
    case Symbolic::kConstrain:
      return {"size", "min", "max"};
    default:
      return {};
  }
}

std::pair<size_t, size_t> ArgumentsOf(Symbolic function) {
  for (const auto& row : kFunctions)
    if (row.function == function) return {row.least, row.most};
  return {0, 0};
}

c10::IValue Evaluate(Symbolic function, const std::vector<IValue>& arguments) {
  const IValue& a = arguments[0];
  const IValue& b = arguments[std::min<size_t>(1, arguments.size() - 1)];
  switch (function) {
    case Symbolic::kSize:
      return a.toTensor().size(b.toInt());
    case Symbolic::kStride:
      return a.toTensor().stride(b.toInt());
    case Symbolic::kNumel:
      return a.toTensor().numel();
    case Symbolic::kAssert:
      TORCH_CHECK(Truth(a), "an assertion of the program does not hold: ",
                  arguments.size() > 1 && b.isString() ? Shorten(b.toStringRef()) : std::string());
      return {};
    case Symbolic::kConstrain:
      return AssertRange(arguments);
    case Symbolic::kAdd:
    case Symbolic::kSub:
    case Symbolic::kMul:
      return Arithmetic(function, a, b);
    case Symbolic::kFloorDiv:
      return FloorDiv(a, b);
    case Symbolic::kMod:
      return Mod(a, b);
    case Symbolic::kTrueDiv:
      TORCH_CHECK(Real(b) != 0, "a division by 0");
      return Real(a) / Real(b);
    case Symbolic::kPow:
      return Pow(a, b);
    case Symbolic::kNeg:
      return Arithmetic(Symbolic::kSub, IsInt(a) ? IValue(int64_t{0}) : IValue(-0.0), a);
    case Symbolic::kPos:
      return a;
    case Symbolic::kMin:
      return Less(b, a) ? b : a;
    case Symbolic::kMax:
      return Less(a, b) ? b : a;
    case Symbolic::kEq:
      return Compared(a, b, [](auto x, auto y) { return x == y; });
    case Symbolic::kNe:
      return Compared(a, b, [](auto x, auto y) { return x != y; });
    case Symbolic::kLt:
      return Less(a, b);
    case Symbolic::kGt:
      return Less(b, a);
    case Symbolic::kLe:
      return Compared(a, b, [](auto x, auto y) { return x <= y; });
    case Symbolic::kGe:
      return Compared(a, b, [](auto x, auto y) { return x >= y; });
    case Symbolic::kAnd:
      if (a.isInt() && b.isInt()) return a.toInt() & b.toInt();
      return Truth(a) && Truth(b);
    case Symbolic::kOr:
      if (a.isInt() && b.isInt()) return a.toInt() | b.toInt();
      return Truth(a) || Truth(b);
    case Symbolic::kNot:
      return !Truth(a);
    case Symbolic::kIfElse:
      return Truth(a) ? b : arguments[2];
    case Symbolic::kToInt:
    case Symbolic::kTrunc:
      return Truncated(a);
    case Symbolic::kToFloat:
      return Real(a);
    case Symbolic::kSqrt:
      return std::sqrt(Real(a));
  }
  return {};
}

}  // namespace permafrost::program
