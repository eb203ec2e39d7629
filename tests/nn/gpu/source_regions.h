// Regions that tests compile into kernels: regions of models, a region with every op, and random regions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "nn/region_builder.h"

namespace permafrost::nn {

// The region of GINE with one row per edge.
inline EdgeRegion EdgeRowsRegion(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), edge = b.Edge(width);
  return b.Build({b.Sum(b.OpX(RegionOp::kRelu, b.Op(RegionOp::kAdd, rows, edge)))});
}

// PNA's aggregations of messages from both ends and the edge: mean, minimum, maximum and standard deviation.
inline EdgeRegion FourAggregations(int32_t width) {
  RegionBuilder b;
  const int32_t ends = b.Op(RegionOp::kAdd, b.Gather(width, 0), b.Expand(b.Target(width)));
  const int32_t message = b.Op(RegionOp::kAdd, ends, b.Edge(width));
  const int32_t count = b.OpX(RegionOp::kClampMin, b.Count(), 1);
  const int32_t mean = b.Op(RegionOp::kDiv, b.Sum(message), count);
  const int32_t squares = b.Op(RegionOp::kDiv, b.Sum(b.OpX(RegionOp::kPower, message, 2)), count);
  const int32_t variance = b.Op(RegionOp::kSub, squares, b.Op(RegionOp::kMul, mean, mean));
  const int32_t deviation = b.OpX(RegionOp::kSqrt, b.OpX(RegionOp::kScale, b.OpX(RegionOp::kRelu, variance), 1, 1e-5));
  return b.Build({mean, b.Reduce(RegionOp::kMin, message), b.Reduce(RegionOp::kMax, message), deviation});
}

// Reductions of reductions, and row sums at every level. Each needs a phase of its own. `width` must be a multiple of
// 4.
inline EdgeRegion NestedReductions(int32_t width) {
  RegionBuilder b;
  const auto mul = [&](int32_t p, int32_t q) { return b.Op(RegionOp::kMul, p, q); };
  const int32_t rows = b.Gather(width, 0), count = b.OpX(RegionOp::kClampMin, b.Count(), 1);
  const int32_t mean = b.Op(RegionOp::kDiv, b.Sum(rows), count);
  const int32_t away = b.Op(RegionOp::kSub, rows, b.Expand(mean));
  const int32_t variance = b.Op(RegionOp::kDiv, b.Sum(mul(away, away)), count);
  const int32_t z = mul(away, b.Expand(b.OpX(RegionOp::kRsqrt, b.OpX(RegionOp::kScale, variance, 1, 0.1))));
  const int32_t norms = b.RowSum(mul(z, z), 4);
  const int32_t largest = b.Expand(b.OpX(RegionOp::kScale, b.Reduce(RegionOp::kMax, norms), 1, 1));
  const int32_t back = b.Sum(mul(z, b.Op(RegionOp::kDiv, norms, largest)));
  const int32_t total = b.RowSum(back, width), pairs = b.RowSum(b.Shared(width), 2);
  const int32_t of_pairs = b.RowSum(b.OpX(RegionOp::kTanh, pairs), 2);
  return b.Build(
      {z, norms, total, mul(mul(back, b.OpX(RegionOp::kSigmoid, total)), of_pairs), b.RowSum(norms, width / 4)});
}

// Outputs that are plain steps: inputs, counts, expanded steps, detached steps, and one step twice.
inline EdgeRegion PlainOutputs(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), target = b.Target(width), edge = b.Edge(width), count = b.Count();
  const int32_t sum = b.Sum(b.Detach(rows)), again = b.Detach(b.Detach(sum));
  const int32_t constants = b.Add({.op = RegionOp::kAdd,
                                   .a = b.Constant(0.5),
                                   .b = b.Constant(-1e30),
                                   .width = width,
                                   .x = 1e-30,
                                   .level = RegionLevel::kEdge});
  return b.Build({rows, target, edge, count, b.Expand(target), sum, again, sum, b.Sum(constants), b.Expand(count),
                  b.Op(RegionOp::kMul, b.Detach(rows), b.Expand(sum))});
}

// Uses numbers that are hard to write as literals.
inline EdgeRegion ManyNumbers(int32_t width) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  RegionBuilder b;
  const int32_t edge = b.Edge(width);
  std::vector<int32_t> outputs;
  for (const double x : {0.1, -0.0, 3.0, -16777217.0, 1e-40, 1.0 / 3, kInf, -kInf, kNan}) {
    outputs.push_back(b.OpX(RegionOp::kScale, edge, x, -x));
    outputs.push_back(b.OpX(RegionOp::kNotEqual, edge, x));
    outputs.push_back(b.Op(RegionOp::kMul, edge, b.Constant(x)));
  }
  return b.Build(outputs);
}

// A region whose kernel never walks edges.
inline EdgeRegion TargetsAlone(int32_t width) {
  RegionBuilder b;
  return b.Build({b.Op(RegionOp::kMul, b.Target(width), b.Shared(1))});
}

// Adds a step for each op that works value by value, once for each number that has a formula of its own. `operands`
// are the steps that the ops read.
inline std::vector<int32_t> AddEveryOpByValue(RegionBuilder& b, RegionLevel level, int32_t width,
                                              const std::vector<int32_t>& operands) {
  std::vector<int32_t> added;
  for (const RegionOpTraits& traits : kRegionOps) {
    if (!traits.by_value) continue;
    std::vector<double> numbers{0.5};
    if (traits.op == RegionOp::kPower) numbers = {2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.7};
    if (traits.op == RegionOp::kAdd || traits.op == RegionOp::kSub) numbers = {1, -0.7};
    for (const double x : numbers) {
      RegionStep step{.op = traits.op, .width = width, .x = x, .y = 0.25, .level = level};
      int32_t* const places[] = {&step.a, &step.b, &step.c};
      // The operands rotate, so that each comes first in turn.
      for (size_t k = 0; k < static_cast<size_t>(traits.operands); ++k) {
        *places[k] = operands[(added.size() + k) % operands.size()];
      }
      added.push_back(b.Add(step));
    }
  }
  return added;
}

// A region with every op. Value-by-value ops occur at each level with full, narrow and shared operands, and the other
// ops read a few of these steps.
inline EdgeRegion EveryOpRegion(int32_t width) {
  RegionBuilder b;
  const int32_t narrow = width / 4, target = b.Target(width), edge = b.Edge(width), shared = b.Shared(width);
  const int32_t few = b.Shared(narrow), number = b.Constant(0.75), gather = b.Gather(width, 0);
  const std::vector<int32_t> of_shared = AddEveryOpByValue(b, RegionLevel::kShared, width, {shared, few, number});
  const std::vector<int32_t> of_target =
      AddEveryOpByValue(b, RegionLevel::kTarget, width, {target, b.Target(narrow), shared, few, b.Count()});
  const std::vector<int32_t> of_edge = AddEveryOpByValue(
      b, RegionLevel::kEdge, width, {edge, gather, b.Gather(narrow, 1), b.Edge(1), shared, number, b.Expand(target)});
  std::vector<int32_t> outputs;
  outputs.reserve(of_shared.size());
  for (const int32_t s : of_shared) outputs.push_back(b.Op(RegionOp::kAdd, target, s));
  outputs.insert(outputs.end(), of_target.begin(), of_target.end());
  outputs.insert(outputs.end(), of_edge.begin(), of_edge.end());
  for (const RegionOp op : {RegionOp::kSum, RegionOp::kMax, RegionOp::kMin}) {
    for (const int32_t from : {edge, gather, b.Detach(of_edge.back())}) outputs.push_back(b.Reduce(op, from));
  }
  for (const int32_t from : {target, edge}) outputs.push_back(b.RowSum(from, 4));
  outputs.push_back(b.Op(RegionOp::kAdd, b.Count(), b.RowSum(shared, width)));
  return b.Build(outputs);
}

// A region of `length` random steps and up to six outputs. Its ops keep values bounded and distinct.
class RandomRegion {
 public:
  RandomRegion(uint32_t seed, int length) : random_(seed) {
    steps_ = {b_.Gather(WidthOf(), 0), b_.Edge(WidthOf()), b_.Target(WidthOf()), b_.Shared(WidthOf()), b_.Count()};
    for (int i = 0; i < length; ++i) steps_.push_back(Next());
  }
  EdgeRegion Build() {
    std::vector<int32_t> outputs;
    for (size_t i = steps_.size(); i-- > 0 && outputs.size() < 6;) {
      if (b_.At(steps_[i]).level != RegionLevel::kShared) outputs.push_back(steps_[i]);
    }
    return b_.Build(outputs);
  }

 private:
  static constexpr RegionOp kUnary[] = {RegionOp::kNeg,      RegionOp::kAbs,      RegionOp::kSigmoid,
                                        RegionOp::kTanh,     RegionOp::kRelu,     RegionOp::kElu,
                                        RegionOp::kSilu,     RegionOp::kSoftplus, RegionOp::kClampMin,
                                        RegionOp::kClampMax, RegionOp::kScale,    RegionOp::kLess};
  static constexpr RegionOp kBinary[] = {RegionOp::kAdd, RegionOp::kSub, RegionOp::kMul, RegionOp::kMaximum,
                                         RegionOp::kMinimum};
  static constexpr RegionOp kReductions[] = {RegionOp::kSum, RegionOp::kMax, RegionOp::kMin};

  size_t Below(size_t n) { return random_() % n; }
  // Each of these widths divides the larger ones.
  int32_t WidthOf() { return std::array{1, 3, 12, 36}[Below(4)]; }
  int32_t Any() { return steps_[Below(steps_.size())]; }
  template <size_t kCount>
  RegionOp OneOf(const RegionOp (&ops)[kCount]) {
    return ops[Below(kCount)];
  }
  // Keeps values bounded, because sums and products grow from step to step.
  int32_t Bounded(int32_t step) { return b_.OpX(RegionOp::kTanh, b_.OpX(RegionOp::kScale, step, 0.3, 0.1)); }

  int32_t Next() {
    const int32_t a = Any(), other = Any();
    const RegionStep of_a = b_.At(a), of_other = b_.At(other);
    switch (Below(5)) {
      case 0:
        return b_.OpX(OneOf(kUnary), a, 0.3, 0.2);
      case 1: {
        if (of_a.level == RegionLevel::kTarget) return b_.Expand(a);
        return of_a.level == RegionLevel::kEdge ? Bounded(b_.Reduce(OneOf(kReductions), a)) : b_.Detach(a);
      }
      case 2:
        return of_a.width % 3 == 0 ? Bounded(b_.RowSum(a, 3)) : b_.OpX(RegionOp::kAbs, a);
      default: {
        const bool fits = of_a.level == of_other.level || of_a.level == RegionLevel::kShared ||
                          of_other.level == RegionLevel::kShared;
        if (!fits) return b_.OpX(RegionOp::kSigmoid, a);
        const int32_t made = Bounded(b_.Op(OneOf(kBinary), a, other, -1, 0.7));
        return Below(4) > 0 ? made : b_.Op(RegionOp::kWhere, made, a, b_.OpX(RegionOp::kGreater, made, 0.05));
      }
    }
  }

  std::mt19937 random_;
  RegionBuilder b_;
  std::vector<int32_t> steps_;
};

}  // namespace permafrost::nn
