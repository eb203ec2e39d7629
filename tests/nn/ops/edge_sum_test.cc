#include "nn/ops/gine_layer.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct EdgeSumCase {
  int64_t nodes = 0, targets = 0, width = 0, most = 0, padding = 0;
  int64_t codes = 0;       // 0: each edge has a row of its own
  int64_t transposed = 0;  // number of rows of the transpose beyond the targets
  at::ScalarType type = at::kDouble;
};

OpOutcome RunEdgeSum(const EdgeSumCase& c) {
  std::mt19937 random(7);
  std::vector<int64_t> offsets{0}, sources;
  for (int64_t r = 0; r < c.targets + c.transposed; ++r) {
    for (auto e = static_cast<int64_t>(random() % static_cast<uint64_t>(c.most + 1)); e > 0; --e) {
      sources.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(c.nodes)));
    }
    offsets.push_back(std::ssize(sources));
  }
  const auto real = std::ssize(sources);
  sources.resize(static_cast<size_t>(real + c.padding), c.nodes - 1);
  const auto edges = real + c.padding;
  const auto values = [&](int64_t rows, int64_t from) {
    return at::sin(at::arange(from, from + rows * c.width, at::kDouble)).to(c.type).view({rows, c.width});
  };
  const Tensor all = at::tensor(offsets, at::kLong), of_sources = at::tensor(sources, at::kLong);
  const Tensor x = Leaf(values(c.nodes, 3)), rows = Leaf(values(c.codes > 0 ? c.codes : edges, 50));
  SummedEdges summed{.offsets = all.narrow(0, 0, c.targets + 1),
                     .sources = of_sources,
                     .transpose = TransposeCsr(all, of_sources, c.nodes),
                     .rows = rows,
                     .code = {}};
  if (c.codes > 0) summed.code = at::arange(edges, at::kLong).remainder(c.codes).to(at::kInt);
  const Tensor out = EdgeSum(x, summed);
  const Tensor weight = at::cos(at::arange(out.numel(), c.type)).reshape(out.sizes());
  const auto gradients = torch::autograd::grad({(out * weight).sum()}, {x, rows});
  return {{"sum", out.detach()}, {"gradient of x", gradients[0]}, {"gradient of rows", gradients[1]}};
}

TEST(EdgeSum, AgreesWithTheOperatorsOfPyTorch) {
  for (const EdgeSumCase& c :
       {EdgeSumCase{.nodes = 5, .targets = 5, .width = 3, .most = 4},
        EdgeSumCase{.nodes = 9, .targets = 4, .width = 1, .most = 0, .padding = 2},
        EdgeSumCase{.nodes = 40, .targets = 30, .width = 17, .most = 6, .padding = 9, .transposed = 10},
        EdgeSumCase{.nodes = 40, .targets = 30, .width = 17, .most = 6, .padding = 9, .codes = 4, .transposed = 10},
        EdgeSumCase{.nodes = 700,
        .targets = 600,
        .width = 64,
        .most = 12,
        .padding = 100,
        .transposed = 90,
        .type = at::kFloat},
        EdgeSumCase{
            .nodes = 700, .targets = 600, .width = 64, .most = 12, .padding = 100, .codes = 60, .type = at::kFloat}}) {
    const std::string why =
        std::to_string(c.targets) + " x " + std::to_string(c.width) + ", " + std::to_string(c.codes) + " codes";
    const OpOutcome fused = RunEdgeSum(c);
    for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
      const LoweringScope scope(lowering);
      ExpectClose(fused, RunEdgeSum(c), c.type == at::kFloat ? 1e-6 : 1e-13, why);
    }
    ExpectEqualByThreads([&] { return RunEdgeSum(c); }, why);
  }
}

// Layer-wise evaluation sums chunks of rows that begin anywhere. Their edges come from all rows.
TEST(EdgeSum, RowsMayBeginAnywhere) {
  const Tensor x = at::sin(at::arange(30, at::kDouble)).view({10, 3});
  const Tensor rows = at::cos(at::arange(12, at::kDouble)).view({4, 3});
  const SummedEdges edges{.offsets = at::tensor({0, 2, 2, 4}, at::kLong),
                          .sources = at::tensor({9, 0, 4, 6}, at::kLong),
                          .transpose = {},
                          .rows = rows,
                          .code = {},
                          .first_row = 5};
  const Tensor messages = (x.index_select(0, edges.sources) + rows).relu();
  const Tensor want = x.narrow(0, 5, 3).index_add(0, at::tensor({0, 0, 2, 2}, at::kLong), messages);
  EXPECT_TRUE(EdgeSum(x, edges).allclose(want, 0, 1e-14));
  const LoweringScope scope(spec::Lowering::kPlain);
  EXPECT_TRUE(EdgeSum(x, edges).allclose(want, 0, 1e-14));
}

TEST(EdgeSum, WhatDoesNotGoTogetherIsRefused) {
  const Tensor x = at::zeros({4, 2}), offsets = at::tensor({0, 1}, at::kLong), sources = at::tensor({0}, at::kLong);
  const auto sum = [&](const Tensor& rows, const Tensor& code, int64_t first_row) {
    return EdgeSum(
        x,
        {.offsets = offsets, .sources = sources, .transpose = {}, .rows = rows, .code = code, .first_row = first_row});
  };
  const Tensor fine = at::zeros({1, 2});
  EXPECT_EQ(sum(fine, {}, 3).size(0), 1);
  EXPECT_THROW(sum(fine, {}, 4), c10::Error) << "rows beyond x";
  EXPECT_THROW(sum(at::zeros({2, 2}), {}, 0), c10::Error) << "more rows than edges";
  EXPECT_THROW(sum(at::zeros({1, 3}), {}, 0), c10::Error) << "of another width";
  EXPECT_THROW(sum(fine, at::zeros({1}, at::kLong), 0), c10::Error) << "codes that are no int32";
}

}  // namespace
}  // namespace permafrost::nn
