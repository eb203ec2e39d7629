// Tests each op of a region that works value by value, at each level and with operands of each width.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "nn/every_instruction_set.h"
#include "nn/region_outcome.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

std::vector<RegionOp> OpsByValue() {
  std::vector<RegionOp> ops;
  for (const RegionOpTraits& traits : kRegionOps) {
    if (traits.by_value) ops.push_back(traits.op);
  }
  return ops;
}

// Returns values of a step's x. Most ops get one at which they have an effect. Powers get the exponents that PyTorch
// computes in special ways.
std::vector<double> NumbersOf(RegionOp op) {
  switch (op) {
    case RegionOp::kPower:
      return {2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.7};
    case RegionOp::kAdd:
    case RegionOp::kSub:
      return {1, -0.7};
    case RegionOp::kLeakyRelu:
      return {0.2};
    default:
      return {0.5};
  }
}

bool IsOfPositive(RegionOp op, double x) {
  return op == RegionOp::kLog || op == RegionOp::kSqrt || op == RegionOp::kRsqrt || op == RegionOp::kReciprocal ||
         (op == RegionOp::kPower && x != 2 && x != 3 && x > 0 && x != 1) || (op == RegionOp::kPower && x < 0);
}

int32_t InputOf(RegionBuilder& b, RegionLevel level, int32_t width) {
  switch (level) {
    case RegionLevel::kShared:
      return b.Shared(width);
    case RegionLevel::kTarget:
      return b.Target(width);
    default:
      return b.Edge(width);
  }
}

// The level and width of an operand.
struct OperandKind {
  const char* name;
  RegionLevel level;
  int32_t width;
};

EdgeRegion RegionOf(RegionOp op, double x, RegionLevel level, int32_t width, const OperandKind& other) {
  RegionBuilder b;
  const int operands = TraitsOf(op).operands;
  // The only operand of a unary op is of the kind `other`.
  int32_t a = operands == 1 ? InputOf(b, other.level, other.width) : InputOf(b, level, width);
  if (IsOfPositive(op, x)) a = b.OpX(RegionOp::kScale, b.OpX(RegionOp::kAbs, a), 1, 0.3);
  int32_t second = operands > 1 ? InputOf(b, other.level, other.width) : -1;
  // Keeps divisors away from 0, where quotients differ by more than sums do.
  if (op == RegionOp::kDiv) second = b.OpX(RegionOp::kScale, b.OpX(RegionOp::kAbs, second), 1, 0.3);
  int32_t third = -1;
  if (operands > 2) third = b.OpX(RegionOp::kGreater, InputOf(b, other.level, other.width), 0.2);
  RegionStep step{.op = op, .a = a, .b = second, .c = third, .width = width, .x = x, .y = 0.25, .level = level};
  const int32_t made = b.Add(step);
  // Uses the operand a second time, so that its gradients add up.
  const int32_t target = b.Target(width);
  if (level == RegionLevel::kEdge) return b.Build({made, b.Sum(b.Op(RegionOp::kMul, made, a))});
  return b.Build({b.Op(RegionOp::kMul, target, made), b.Op(RegionOp::kAdd, b.Op(RegionOp::kMul, target, a), made)});
}

TEST(EdgeRegionValues, EveryOpAtEveryLevelAndWidth) {
  for (const int32_t width : {3, 100}) {
    const int32_t narrow = width % 4 == 0 ? 4 : 1;
    for (const RegionLevel level : {RegionLevel::kShared, RegionLevel::kTarget, RegionLevel::kEdge}) {
      const OperandKind kinds[] = {{"whole", level, width},
                                   {"narrow", level, narrow},
                                   {"shared", RegionLevel::kShared, width},
                                   {"shared and narrow", RegionLevel::kShared, narrow},
                                   {"one number", RegionLevel::kShared, 1}};
      for (const OperandKind& kind : kinds) {
        const RegionGraph graph = MakeGraph(12, 30, 0);
        for (const RegionOp op : OpsByValue()) {
          for (const double x : NumbersOf(op)) {
            const EdgeRegion region = RegionOf(op, x, level, width, kind);
            ExpectLikePlain(region, graph, std::string(kind.name) + "\n" + ToString(region), /*levels=*/false,
                            /*of_float=*/1e-4);
          }
        }
      }
    }
  }
}

TEST(EdgeRegionValues, EveryInstructionSet) {
  const RegionGraph graph = MakeGraph(9, 31, 0);
  ForEveryInstructionSet([&](const std::string& set) {
    for (const RegionOp op : OpsByValue()) {
      for (const double x : NumbersOf(op)) {
        const EdgeRegion region = RegionOf(op, x, RegionLevel::kEdge, 7, {"whole", RegionLevel::kEdge, 7});
        ExpectLikePlain(region, graph, set + "\n" + ToString(region));
      }
    }
  });
}

// Expects NaN at the same places, and the same infinities.
void ExpectSameWithNan(const OpOutcome& a, const OpOutcome& b, double tolerance, const std::string& why) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor &p = a[i].second, &q = b[i].second;
    const Tensor differs = at::isclose(p, q, tolerance, tolerance, /*equal_nan=*/true).logical_not();
    EXPECT_FALSE(differs.any().item<bool>()) << why << a[i].first << "\n"
                                             << at::stack({p.masked_select(differs), q.masked_select(differs)}, 1);
  }
}

TEST(EdgeRegionValues, NanInfAndLargeNumbersAsInPyTorch) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> special{kNan, kInf, -kInf, 0.0,  -0.0, 0.5, -0.5, 1,   -1,   20,   -20,   21,
                                    88,   89,   -88,   -104, 700,  710, -745, 1e4, -1e4, 1e30, -1e30, 1e-30};
  const auto count = static_cast<int64_t>(special.size());
  // Combines each value with each value.
  const Tensor values = at::tensor(special, at::kDouble);
  const Tensor first = values.repeat_interleave(count).unsqueeze(1), second = values.repeat({count}).unsqueeze(1);
  RegionGraph graph = MakeGraph(count * count, count * count, 0);
  ForEveryInstructionSet([&](const std::string& set) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      for (const RegionOp op : OpsByValue()) {
        for (const double x : NumbersOf(op)) {
          RegionBuilder b;
          const int32_t a = b.Edge(1), other = TraitsOf(op).operands > 1 ? b.Edge(1) : -1;
          const int32_t mask = TraitsOf(op).operands > 2 ? b.OpX(RegionOp::kLess, a, 0.5) : -1;
          const EdgeRegion region = b.Build({b.Op(op, a, other, mask, x, 0.25)});
          std::vector<Tensor> inputs{first.to(type)};
          if (other != -1) inputs.push_back(second.to(type));
          ExpectSameWithNan(OutcomeOf(RegionSide::kFused, region, graph, inputs),
                            OutcomeOf(RegionSide::kPlain, region, graph, inputs), type == at::kFloat ? 1e-5 : 1e-12,
                            set + "\n" + ToString(region));
        }
      }
    }
  });
}

TEST(EdgeRegionValues, NanAndInfInSumsAndLargestValuesAsInPyTorch) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  RegionGraph graph = MakeGraph(6, 9, 0);
  graph.target_index = at::tensor({0, 0, 0, 1, 1, 2, 2, 3, 4}, at::kLong);
  const Tensor rows = at::tensor({1.0, kNan, 2.0, kInf, 3.0, -kInf, 3.0, kNan, -kInf}, at::kDouble).unsqueeze(1);
  for (const RegionOp op : {RegionOp::kSum, RegionOp::kMax, RegionOp::kMin}) {
    RegionBuilder b;
    const EdgeRegion region = b.Build({b.Reduce(op, b.Edge(1))});
    ExpectSameWithNan(OutcomeOf(RegionSide::kFused, region, graph, {rows}),
                      OutcomeOf(RegionSide::kPlain, region, graph, {rows}), 0, ToString(region));
  }
}

}  // namespace
}  // namespace permafrost::nn
