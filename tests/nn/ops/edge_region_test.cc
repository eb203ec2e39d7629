#include "nn/ops/edge_region.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/every_instruction_set.h"
#include "nn/region_outcome.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

EdgeRegion Reduced(RegionOp op, int32_t width) {
  RegionBuilder b;
  return b.Build({b.Reduce(op, b.Gather(width, 0))});
}

EdgeRegion MeanRegion(int32_t width) {
  RegionBuilder b;
  const int32_t sum = b.Sum(b.Op(RegionOp::kMul, b.Gather(width, 0), b.Edge(1)));
  return b.Build({b.Op(RegionOp::kDiv, sum, b.OpX(RegionOp::kClampMin, b.Count(), 1))});
}

// Computes the mean and standard deviation of the incoming rows from two moments, and adds the mean to the target's
// own row.
EdgeRegion MomentsRegion(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), own = b.Target(width);
  const int32_t count = b.OpX(RegionOp::kClampMin, b.Count(), 1);
  const int32_t mean = b.Op(RegionOp::kDiv, b.Sum(rows), count);
  const int32_t squares = b.Op(RegionOp::kDiv, b.Sum(b.Op(RegionOp::kMul, rows, rows)), count);
  const int32_t variance =
      b.OpX(RegionOp::kClampMin, b.Op(RegionOp::kSub, squares, b.Op(RegionOp::kMul, mean, mean)), 1e-5);
  return b.Build({b.OpX(RegionOp::kSqrt, variance), b.Op(RegionOp::kAdd, own, mean)});
}

// Selects values by the sign of a product with a shared row. The mask is an output, too.
EdgeRegion WhereRegion(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), edge = b.Edge(width);
  const int32_t mask = b.OpX(RegionOp::kGreater, b.Op(RegionOp::kMul, edge, b.Shared(width)), 0.1);
  const int32_t chosen = b.Op(RegionOp::kWhere, rows, b.OpX(RegionOp::kTanh, edge), mask);
  return b.Build({b.Sum(chosen), mask, chosen});
}

// Rows that several steps read, steps with the same step as both operands, and outputs that are inputs or that occur
// twice.
EdgeRegion RepeatedRegion(int32_t width) {
  RegionBuilder b;
  const int32_t first = b.Gather(width, 0), target = b.Target(width), edge = b.Edge(width);
  RegionStep same = b.At(first);
  const int32_t again = b.Add(same);
  const int32_t product = b.Op(RegionOp::kMul, again, again);
  const int32_t sum = b.Op(RegionOp::kAdd, first, first);
  const int32_t both = b.Op(RegionOp::kSub, product, sum, -1, 0.5);
  const int32_t expanded = b.Op(RegionOp::kMul, b.Expand(target), both);
  const int32_t total = b.Sum(expanded);
  return b.Build({total, total, edge, target, both, b.Detach(both), b.Op(RegionOp::kMul, total, target), again});
}

// Computes on shared inputs. The results reach edges and targets as a full row, by groups, and as one number.
EdgeRegion SharedRegion(int32_t width, int32_t groups) {
  RegionBuilder b;
  const int32_t one = b.Shared(1), row = b.Shared(width), few = b.Shared(groups);
  const int32_t shared = b.Op(RegionOp::kMul, b.OpX(RegionOp::kSigmoid, row), b.Op(RegionOp::kAdd, few, one));
  const int32_t number = b.RowSum(shared, width);
  const int32_t edge = b.Op(RegionOp::kAdd, b.Op(RegionOp::kMul, b.Gather(width, 0), shared), number);
  const int32_t wide = b.Op(RegionOp::kMul, b.Op(RegionOp::kMaximum, few, b.Edge(width)), b.Constant(1.5));
  const int32_t sum = b.Sum(b.Op(RegionOp::kMul, edge, wide));
  return b.Build({b.Op(RegionOp::kAdd, b.Op(RegionOp::kMul, sum, few), one), wide});
}

// Rows that are weighted head by head, scaled by their own factors and divided by the degree, as graph convolutions
// are.
EdgeRegion WeightedRegion(int32_t width, int32_t heads) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), factor = b.Gather(1, 0), edge = b.Edge(1), own = b.Target(1);
  const int32_t weight = b.Op(RegionOp::kMul, b.Op(RegionOp::kMul, factor, edge), b.Expand(own));
  const int32_t sum = b.Sum(b.Op(RegionOp::kMul, weight, rows));
  const int32_t by_head = b.Sum(b.Op(RegionOp::kMul, rows, b.Edge(heads)));
  const int32_t degree = b.OpX(RegionOp::kClampMin, b.Count(), 1);
  return b.Build({b.Op(RegionOp::kDiv, b.Op(RegionOp::kAdd, sum, by_head), degree), sum});
}

// Sums of values that ReLU and its like gate, over rows of the source, of the target and of the edge.
EdgeRegion GatedRegion(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), target = b.Target(width), edge = b.Edge(width);
  const int32_t z = b.Op(RegionOp::kAdd, rows, b.Expand(target), -1, 0.5);
  const int32_t relu = b.Sum(b.Op(RegionOp::kRelu, z));
  const int32_t leaky = b.Sum(b.OpX(RegionOp::kLeakyRelu, b.Op(RegionOp::kSub, rows, edge, -1, 2), 0.1));
  const int32_t product = b.Sum(b.Op(RegionOp::kRelu, b.Op(RegionOp::kMul, rows, edge)));
  const int32_t divisor = b.OpX(RegionOp::kClampMin, b.OpX(RegionOp::kAbs, b.Shared(1)), 0.5);
  const int32_t grouped = b.Sum(b.RowSum(b.Op(RegionOp::kDiv, b.OpX(RegionOp::kNeg, rows), divisor), width));
  return b.Build({b.Op(RegionOp::kAdd, relu, b.OpX(RegionOp::kScale, leaky, 3)), product, grouped, z});
}

std::vector<std::pair<std::string, EdgeRegion>> Regions(int32_t width) {
  const int32_t heads = width % 4 == 0 ? 4 : width % 3 == 0 ? 3 : 1;
  std::vector<std::pair<std::string, EdgeRegion>> regions{{"sum", Reduced(RegionOp::kSum, width)},
                                                          {"max", Reduced(RegionOp::kMax, width)},
                                                          {"min", Reduced(RegionOp::kMin, width)},
                                                          {"mean", MeanRegion(width)},
                                                          {"moments", MomentsRegion(width)},
                                                          {"softmax", SoftmaxRegion(width, heads)},
                                                          {"where", WhereRegion(width)},
                                                          {"repeated", RepeatedRegion(width)},
                                                          {"shared", SharedRegion(width, heads)},
                                                          {"gine", GineRegion(width)},
                                                          {"weighted", WeightedRegion(width, heads)},
                                                          {"gated", GatedRegion(width)}};
  return regions;
}

TEST(EdgeRegion, AgreesWithTheOperatorsOfPyTorch) {
  for (const int32_t width : {1, 3, 16, 64, 100}) {
    for (const auto& [name, region] : Regions(width)) {
      const std::string why = name + " of width " + std::to_string(width);
      ExpectLikePlain(region, MakeGraph(60, 150, region.num_indices), why + ", edges in any order");
      ExpectLikePlain(region, MakeGraph(60, 150, region.num_indices, /*sorted=*/true), why + ", edges by target");
      ExpectLikePlain(region, MakeGraph(20, 150, region.num_indices), why + ", equal values", /*levels=*/true);
    }
  }
}

TEST(EdgeRegion, GraphsAtTheirBounds) {
  const struct {
    const char* why;
    int64_t targets, edges;
  } kGraphs[] = {{"nothing", 0, 0}, {"no edges", 7, 0}, {"one edge", 1, 1}, {"few edges", 300, 5}, {"many", 3, 2000}};
  for (const auto& g : kGraphs) {
    for (const auto& [name, region] : Regions(16)) {
      ExpectLikePlain(region, MakeGraph(g.targets, g.edges, region.num_indices), name + ", " + g.why,
                      /*levels=*/false, /*of_float=*/1e-4);
    }
  }
}

TEST(EdgeRegion, OneTargetWithAHundredThousandEdges) {
  for (const EdgeRegion& region : {SoftmaxRegion(8, 2), GineRegion(8)}) {
    RegionGraph graph = MakeGraph(50, 100'000, region.num_indices);
    graph.target_index.fill_(7);
    const std::vector<Tensor> inputs = MakeInputs(region, graph, at::kDouble);
    nn::ExpectClose(OutcomeOf(RegionSide::kFused, region, graph, inputs),
                    OutcomeOf(RegionSide::kPlain, region, graph, inputs), 1e-11, "a hub");
  }
}

TEST(EdgeRegion, EveryInstructionSet) {
  for (const auto& [name, region] : Regions(36)) {
    const RegionGraph graph = MakeGraph(40, 120, region.num_indices);
    ForEveryInstructionSet(
        [&, &what = name, &of = region](const std::string& set) { ExpectLikePlain(of, graph, what + " with " + set); });
  }
}

TEST(EdgeRegion, EqualBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const auto& [name, region] : Regions(64)) {
    // The gradient of a small table is summed by row for few edges, and by chunk for many.
    for (const int64_t edges : {2000, 6000}) {
      const RegionGraph graph = MakeGraph(1500, edges, region.num_indices);
      const std::vector<Tensor> inputs = MakeInputs(region, graph, at::kFloat);
      std::vector<OpOutcome> outcomes;
      for (const int count : {1, 2, 3}) {
        at::set_num_threads(count);
        outcomes.push_back(OutcomeOf(RegionSide::kFused, region, graph, inputs));
      }
      for (size_t i = 0; i < outcomes[0].size(); ++i) {
        EXPECT_TRUE(at::equal(outcomes[0][i].second, outcomes[1][i].second)) << name << ": " << outcomes[0][i].first;
        EXPECT_TRUE(at::equal(outcomes[0][i].second, outcomes[2][i].second)) << name << ": " << outcomes[0][i].first;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(EdgeRegion, GradientsAreThoseOfDifferences) {
  for (const auto& [name, region] : Regions(4)) {
    const RegionGraph graph = MakeGraph(5, 11, region.num_indices);
    const std::vector<Tensor> inputs = MakeInputs(region, graph, at::kDouble);
    const OpOutcome outcome = OutcomeOf(RegionSide::kFused, region, graph, inputs);
    if (name == "repeated") continue;  // finite differences see a detached step, but its gradient is 0
    const auto loss = [&, &of = region] {
      const at::NoGradGuard none;
      double total = 0;
      for (const Tensor& out : OutputsOf(RegionSide::kFused, of, graph, inputs)) {
        total += (out * at::cos(at::arange(out.numel(), out.scalar_type())).reshape(out.sizes())).sum().item<double>();
      }
      return total;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor gradient = outcome[region.outputs.size() + i].second.reshape({-1});
      for (int64_t k = 0; k < inputs[i].numel(); ++k) {
        constexpr double kStep = 1e-6;
        double* const value = inputs[i].mutable_data_ptr<double>() + k;
        const double before = *value;
        *value = before + kStep;
        const double above = loss();
        *value = before - kStep;
        const double below = loss();
        *value = before;
        EXPECT_NEAR((above - below) / (2 * kStep), gradient[k].item<double>(), 1e-6) << name << ": " << i << ", " << k;
      }
    }
  }
}

TEST(EdgeRegion, EqualLargestValuesShareTheGradient) {
  RegionGraph graph = MakeGraph(3, 5, 1);
  graph.target_index = at::tensor({2, 0, 0, 2, 0}, at::kLong);
  graph.indices[0] = at::tensor({0, 1, 1, 2, 0}, at::kLong);
  const Tensor x = at::tensor({1.0, 4.0, 3.0}, at::kDouble).unsqueeze(1);
  const OpOutcome outcome = OutcomeOf(RegionSide::kFused, Reduced(RegionOp::kMax, 1), graph, {x});
  EXPECT_TRUE(outcome[0].second.equal(at::tensor({4.0, 0.0, 3.0}, at::kDouble).unsqueeze(1)));
  EXPECT_TRUE(at::allclose(outcome[1].second, at::tensor({0.0, 1.0, std::cos(2.0)}, at::kDouble).unsqueeze(1)));
}

TEST(EdgeRegion, TablesWithAndWithoutSegmentsHaveOneGradient) {
  const EdgeRegion region = GineRegion(48);
  for (const int64_t rows : {4, 5000}) {
    // Without segments, the gradient of a small table is summed by row for few edges, and by chunk for many.
    for (const int64_t edges : {3000, 8000}) {
      RegionGraph graph = MakeGraph(700, edges, 2);
      graph.rows[1] = rows;
      std::vector<OpOutcome> outcomes;
      for (const bool given : {false, true}) {
        graph.has_segments = {given, given};
        outcomes.push_back(OutcomeOf(RegionSide::kFused, region, graph, MakeInputs(region, graph, at::kDouble)));
      }
      nn::ExpectClose(outcomes[0], outcomes[1], 1e-12, std::to_string(rows) + " rows");
    }
  }
}

TEST(EdgeRegion, GradientsOfEdgesDividedByTheDegreeOfTheirTarget) {
  RegionBuilder b;
  const int32_t degree = b.Expand(b.OpX(RegionOp::kClampMin, b.Count(), 1));
  ExpectLikePlain(b.Build({b.Op(RegionOp::kDiv, b.Gather(64, 0), degree)}), MakeGraph(60, 150, 1), "no sum");
}

TEST(EdgeRegion, ASumOfASharedRowWhereEdgesAreNegative) {
  RegionBuilder b;
  const int32_t h = b.Op(RegionOp::kAdd, b.Gather(64, 0), b.Edge(64)), row = b.Shared(64);
  const int32_t mask = b.OpX(RegionOp::kLessEqual, h, 0), zero = b.Constant(0);
  ExpectLikePlain(b.Build({b.Sum(b.Op(RegionOp::kWhere, zero, row, mask))}), MakeGraph(60, 150, 1), "a shared row");
}

TEST(EdgeRegion, ProductsOfNarrowOperandsAlone) {
  RegionBuilder b;
  const int32_t first = b.Edge(1), second = b.Edge(2);
  const auto product = [&](int32_t a, int32_t c) {
    return b.Add({.op = RegionOp::kMul, .a = a, .b = c, .width = 64, .x = 1, .level = RegionLevel::kEdge});
  };
  const int32_t both = product(first, second), square = product(second, second);
  ExpectLikePlain(b.Build({b.Sum(both), b.Sum(square), both}), MakeGraph(60, 150, 0), "narrow operands");
}

// The number of derived steps must not double with every step.
TEST(EdgeRegion, ALongChainOfSharedSteps) {
  RegionBuilder b;
  int32_t shared = b.Shared(1);
  for (int i = 0; i < 200; ++i) shared = b.OpX(RegionOp::kScale, b.Op(RegionOp::kAdd, shared, shared), 0.5);
  ExpectLikePlain(b.Build({b.Sum(b.Op(RegionOp::kMul, b.Gather(64, 0), shared))}), MakeGraph(60, 150, 1), "a chain");
}

TEST(EdgeRegion, SegmentsAreStableAndComplete) {
  const EdgeSegments segments = SegmentsOf(at::tensor({3, 0, 3, 1, 0}, at::kLong), 5);
  EXPECT_TRUE(segments.offsets.equal(at::tensor({0, 2, 3, 3, 5, 5}, at::kInt)));
  EXPECT_TRUE(segments.places.equal(at::tensor({1, 4, 3, 0, 2}, at::kInt)));
  EXPECT_TRUE(SegmentsOf(at::empty({0}, at::kLong), 0).offsets.equal(at::tensor({0}, at::kInt)));
}

}  // namespace
}  // namespace permafrost::nn
