#include "nn/gpu/region_formulas.h"

#include <charconv>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

namespace permafrost::nn::gpu {
namespace {

// A C expression for each value-by-value step. $0, $1 and $2 are the operands, $3 and $4 the numbers x and y; $5 ends
// the names of math functions. Comparisons of C with NaN are false, except `!=`. The formulas are ordered so that NaN
// passes through arithmetic; a mask of NaN is 0, except kNotEqual's, which is 1.
struct Formula {
  RegionOp op;
  const char* text;
};
constexpr Formula kFormulas[] = {
    {RegionOp::kNeg, "-$0"},
    {RegionOp::kAbs, "fabs$5($0)"},
    {RegionOp::kExp, "exp$5($0)"},
    {RegionOp::kLog, "log$5($0)"},
    {RegionOp::kSqrt, "sqrt$5($0)"},
    {RegionOp::kRsqrt, "1 / sqrt$5($0)"},
    {RegionOp::kReciprocal, "1 / $0"},
    {RegionOp::kSigmoid, "1 / (1 + exp$5(-$0))"},
    {RegionOp::kTanh, "tanh$5($0)"},
    {RegionOp::kRelu, "$0 < 0 ? 0 : $0"},
    {RegionOp::kLeakyRelu, "$0 > 0 ? $0 : $0 * $3"},
    {RegionOp::kElu, "$0 < 0 ? $3 * expm1$5($0) : $0"},
    {RegionOp::kSilu, "$0 / (1 + exp$5(-$0))"},
    {RegionOp::kSoftplus, "$0 > 20 ? $0 : log1p$5(exp$5($0))"},
    {RegionOp::kClampMin, "$0 < $3 ? $3 : $0"},
    {RegionOp::kClampMax, "$0 > $3 ? $3 : $0"},
    {RegionOp::kPower, "pow$5($0, $3)"},
    {RegionOp::kScale, "$0 * $3 + $4"},
    {RegionOp::kAdd, "$0 + $1 * $3"},
    {RegionOp::kSub, "$0 - $1 * $3"},
    {RegionOp::kMul, "$0 * $1"},
    {RegionOp::kDiv, "$0 / $1"},
    {RegionOp::kMaximum, "$0 > $1 || $0 != $0 ? $0 : $1"},
    {RegionOp::kMinimum, "$0 < $1 || $0 != $0 ? $0 : $1"},
    {RegionOp::kLess, "$0 < $3 ? 1 : 0"},
    {RegionOp::kLessEqual, "$0 <= $3 ? 1 : 0"},
    {RegionOp::kGreater, "$0 > $3 ? 1 : 0"},
    {RegionOp::kGreaterEqual, "$0 >= $3 ? 1 : 0"},
    {RegionOp::kEqual, "$0 == $3 ? 1 : 0"},
    {RegionOp::kNotEqual, "$0 != $3 ? 1 : 0"},
    {RegionOp::kWhere, "$2 == 0 ? $1 : $0"},
};

// A shorter form for one number x, as PyTorch's operators have it too.
struct ShortFormula {
  RegionOp op;
  double x;
  const char* text;
};
constexpr ShortFormula kShortFormulas[] = {
    {RegionOp::kAdd, 1, "$0 + $1"},
    {RegionOp::kSub, 1, "$0 - $1"},
    {RegionOp::kPower, 1, "$0"},
    {RegionOp::kPower, 2, "$0 * $0"},
    {RegionOp::kPower, 3, "$0 * $0 * $0"},
    {RegionOp::kPower, 0.5, "sqrt$5($0)"},
    {RegionOp::kPower, -0.5, "1 / sqrt$5($0)"},
    {RegionOp::kPower, -1, "1 / $0"},
    {RegionOp::kPower, -2, "1 / ($0 * $0)"},
};

const char* TextOf(const RegionStep& step) {
  for (const ShortFormula& f : kShortFormulas) {
    if (f.op == step.op && f.x == step.x) return f.text;
  }
  for (const Formula& f : kFormulas) {
    if (f.op == step.op) return f.text;
  }
  return "";
}

template <class T>
constexpr const char* kSuffix = std::is_same_v<T, float> ? "f" : "";

template <class T>
std::string LiteralOf(double x) {
  // The CPU's kernels round it in the same way.
  const T value = static_cast<T>(x);
  if (std::isnan(value)) return absl::Substitute("(0.0$0 / 0.0$0)", kSuffix<T>);
  if (std::isinf(value)) return absl::Substitute("($1.0$0 / 0.0$0)", kSuffix<T>, value > 0 ? "1" : "-1");
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string text(digits.data(), end);
  const bool is_integer = text.find_first_of(".e") == std::string::npos;
  return absl::StrCat(text, is_integer ? ".0" : "", kSuffix<T>);
}

}  // namespace

template <class T>
ValueType ValueTypeOf() {
  return {.name = std::is_same_v<T, float> ? "float" : "double", .suffix = kSuffix<T>, .literal = &LiteralOf<T>};
}
template ValueType ValueTypeOf<float>();
template ValueType ValueTypeOf<double>();

std::string FormulaOf(const RegionStep& step, const std::array<std::string, 3>& operands, const ValueType& type) {
  return absl::Substitute(TextOf(step), operands[0], operands[1], operands[2], type.literal(step.x),
                          type.literal(step.y), type.suffix);
}

}  // namespace permafrost::nn::gpu
