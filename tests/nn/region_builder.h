// Regions built step by step, and graphs and inputs to run them on.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "nn/ops/edge_region.h"

namespace permafrost::nn {

// Each function adds a step and returns its index. The level and width of the step follow from its operands.
struct RegionBuilder {
  EdgeRegion region;

  int32_t Add(RegionStep step) {
    region.steps.push_back(step);
    return static_cast<int32_t>(region.steps.size()) - 1;
  }
  const RegionStep& At(int32_t step) const { return region.steps[static_cast<size_t>(step)]; }

  int32_t Input(RegionOp op, int32_t width, int32_t index = -1) {
    const RegionLevel level = op == RegionOp::kShared   ? RegionLevel::kShared
                              : op == RegionOp::kTarget ? RegionLevel::kTarget
                                                        : RegionLevel::kEdge;
    region.num_indices = std::max(region.num_indices, index + 1);
    return Add({.op = op, .input = region.num_inputs++, .index = index, .width = width, .level = level});
  }
  int32_t Shared(int32_t width) { return Input(RegionOp::kShared, width); }
  int32_t Target(int32_t width) { return Input(RegionOp::kTarget, width); }
  int32_t Edge(int32_t width) { return Input(RegionOp::kEdge, width); }
  int32_t Gather(int32_t width, int32_t index) { return Input(RegionOp::kGather, width, index); }
  int32_t Constant(double x) { return Add({.op = RegionOp::kConstant, .x = x}); }
  int32_t Count() { return Add({.op = RegionOp::kCount, .level = RegionLevel::kTarget}); }

  int32_t Expand(int32_t a) {
    return Add({.op = RegionOp::kExpand, .a = a, .width = At(a).width, .level = RegionLevel::kEdge});
  }
  int32_t Reduce(RegionOp op, int32_t a) {
    return Add({.op = op, .a = a, .width = At(a).width, .level = RegionLevel::kTarget});
  }
  int32_t Sum(int32_t a) { return Reduce(RegionOp::kSum, a); }
  int32_t RowSum(int32_t a, int32_t group) {
    return Add({.op = RegionOp::kRowSum, .a = a, .width = At(a).width / group, .group = group, .level = At(a).level});
  }
  int32_t Detach(int32_t a) {
    return Add({.op = RegionOp::kDetach, .a = a, .width = At(a).width, .level = At(a).level});
  }

  int32_t Op(RegionOp op, int32_t a, int32_t b = -1, int32_t c = -1, double x = 1, double y = 0) {
    RegionStep step{.op = op, .a = a, .b = b, .c = c, .x = x, .y = y};
    for (const int32_t o : {a, b, c}) {
      if (o == -1) continue;
      step.width = std::max(step.width, At(o).width);
      step.level = std::max(step.level, At(o).level);
    }
    return Add(step);
  }
  int32_t OpX(RegionOp op, int32_t a, double x = 1, double y = 0) { return Op(op, a, -1, -1, x, y); }

  EdgeRegion Build(std::vector<int32_t> outputs) {
    region.outputs = std::move(outputs);
    return region;
  }
};

// Softmax of the scores [heads] over each target's edges. The resulting weights scale the rows [width], which are
// then summed.
inline EdgeRegion SoftmaxRegion(int32_t width, int32_t heads) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), key = b.Target(width), attention = b.Shared(width);
  const int32_t z = b.OpX(RegionOp::kLeakyRelu, b.Op(RegionOp::kAdd, rows, b.Expand(key)), 0.2);
  const int32_t score = b.RowSum(b.Op(RegionOp::kMul, z, attention), width / heads);
  const int32_t largest = b.Expand(b.Detach(b.Reduce(RegionOp::kMax, score)));
  const int32_t weight = b.Op(RegionOp::kExp, b.Op(RegionOp::kSub, score, largest));
  const int32_t total = b.Expand(b.OpX(RegionOp::kScale, b.Sum(weight), 1, 1e-16));
  const int32_t alpha = b.Op(RegionOp::kDiv, weight, total);
  return b.Build({b.Sum(b.Op(RegionOp::kMul, rows, alpha)), alpha});
}

// The region of GINE: rows of nodes plus rows of a small table.
inline EdgeRegion GineRegion(int32_t width) {
  RegionBuilder b;
  const int32_t rows = b.Gather(width, 0), table = b.Gather(width, 1);
  return b.Build({b.Sum(b.Op(RegionOp::kRelu, b.Op(RegionOp::kAdd, rows, table)))});
}

struct RegionGraph {
  int64_t targets = 0;
  at::Tensor target_index;
  std::vector<at::Tensor> indices;
  std::vector<int64_t> rows;       // number of rows of the tables that each index reads
  std::vector<bool> has_segments;  // whether the operator is given segments for each index
};

// Makes edges in any order. Index 0 reads as many rows as there are targets, and has segments. The other indices read
// 4 rows and have none.
inline RegionGraph MakeGraph(int64_t targets, int64_t edges, int32_t num_indices, bool sorted = false, int seed = 3) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto draw = [&](int64_t rows) {
    std::vector<int64_t> values;
    for (int64_t e = 0; e < edges; ++e) {
      values.push_back(static_cast<int64_t>(random()) % std::max<int64_t>(1, rows));
    }
    return values;
  };
  RegionGraph graph{.targets = targets};
  std::vector<int64_t> target = draw(targets);
  if (sorted) std::ranges::sort(target);
  graph.target_index = at::tensor(target, at::kLong);
  for (int32_t k = 0; k < num_indices; ++k) {
    graph.rows.push_back(k == 0 ? targets : 4);
    graph.indices.push_back(at::tensor(draw(graph.rows.back()), at::kLong));
    graph.has_segments.push_back(k == 0);
  }
  return graph;
}

inline std::vector<int64_t> InputSizes(const RegionStep& step, const RegionGraph& graph) {
  switch (step.op) {
    case RegionOp::kShared:
      return {step.width};
    case RegionOp::kTarget:
      return {graph.targets, step.width};
    case RegionOp::kEdge:
      return {graph.target_index.numel(), step.width};
    default:
      return {graph.rows[static_cast<size_t>(step.index)], step.width};
  }
}

// Makes values in (-2, 2). With `levels` they take only a few levels, so that many are equal.
inline std::vector<at::Tensor> MakeInputs(const EdgeRegion& region, const RegionGraph& graph, at::ScalarType type,
                                          bool levels = false) {
  std::vector<at::Tensor> inputs(static_cast<size_t>(region.num_inputs));
  for (const RegionStep& step : region.steps) {
    if (step.input == -1) continue;
    const auto input = static_cast<size_t>(step.input);
    const std::vector<int64_t> sizes = InputSizes(step, graph);
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    at::Tensor values = 2 * at::sin(at::arange(count, at::kDouble) * (1.7 + step.input) + step.input + 0.3);
    if (levels) values = at::round(values * 1.5) / 2;
    inputs[input] = values.reshape(sizes).to(type);
  }
  return inputs;
}

inline RegionEdges EdgesOf(const RegionGraph& graph) {
  RegionEdges edges{.targets = SegmentsOf(graph.target_index, graph.targets), .indices = graph.indices};
  for (size_t k = 0; k < graph.indices.size(); ++k) {
    edges.index_segments.push_back(graph.has_segments[k] ? SegmentsOf(graph.indices[k], graph.rows[k])
                                                         : EdgeSegments());
  }
  return edges;
}

}  // namespace permafrost::nn
