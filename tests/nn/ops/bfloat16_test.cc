// Compares products of factors rounded to bfloat16 with float64 sums over the rounded factors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/gine_layer.h"
#include "nn/ops/graph_conv.h"
#include "nn/ops/linear.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

class Bfloat16Test : public testing::Test {
 protected:
  void SetUp() override {
    if (!CanRoundFactors()) GTEST_SKIP() << "this processor has no AVX512-BF16";
  }
};

// Returns a factor after rounding, in float64.
Tensor Rounded(const Tensor& t) { return t.detach().to(at::kBFloat16).to(at::kDouble); }
// Returns a result in float32, as it is before it is rounded.
Tensor Single(const Tensor& t) { return t.to(at::kFloat); }

struct ProductShape {
  const char* why;
  int64_t rows, in, hidden, out;
};
const ProductShape kProductShapes[] = {{"one value", 1, 1, 1, 1},
                                       {"no rows", 0, 5, 4, 3},
                                       {"a head", 33, 64, 32, 1},
                                       {"odd rows and widths, several chunks", 701, 45, 71, 19},
                                       {"as wide as the vectors", 256, 64, 32, 96},
                                       {"a wide one", 300, 300, 600, 300}};

struct ProductLeaves {
  explicit ProductLeaves(const ProductShape& s) {
    at::manual_seed(s.rows + s.in);
    const auto make = [](at::IntArrayRef sizes) { return Leaf(at::randn(sizes)); };
    x = make({s.rows, s.in});
    w1 = make({s.hidden, s.in});
    b1 = make({s.hidden});
    w2 = make({s.out, s.hidden});
    b2 = make({s.out});
    grad = at::randn({s.rows, s.out});
  }
  Tensor x, w1, b1, w2, b2, grad;
};

OpOutcome RunRoundedMlp(const ProductShape& shape) {
  const ProductLeaves l(shape);
  const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
  const Tensor y = Mlp(l.x, l.w1, l.b1, l.w2, l.b2);
  torch::autograd::backward({y}, {l.grad});
  return {{"y", y.detach()},   {"x", l.x.grad()},   {"w1", l.w1.grad()},
          {"b1", l.b1.grad()}, {"w2", l.w2.grad()}, {"b2", l.b2.grad()}};
}

OpOutcome ExpectedMlp(const ProductShape& shape) {
  const ProductLeaves l(shape);
  const Tensor hidden = Single((Rounded(l.x).mm(Rounded(l.w1).t()) + l.b1.detach()).relu());
  const Tensor y = Rounded(hidden).mm(Rounded(l.w2).t()) + l.b2.detach();
  const Tensor g = Single(Rounded(l.grad).mm(Rounded(l.w2)) * hidden.gt(0));
  return {{"y", Single(y)},
          {"x", Single(Rounded(g).mm(Rounded(l.w1)))},
          {"w1", Single(Rounded(g).t().mm(Rounded(l.x)))},
          {"b1", g.sum(0)},
          {"w2", Single(Rounded(l.grad).t().mm(Rounded(hidden)))},
          {"b2", l.grad.sum(0)}};
}

// Another order of the float32 sum may round a hidden value to its other neighbour, 2^-8 of the value away. The
// tolerance allows for that. Factors that were not rounded, or truncated, would differ by more.
TEST_F(Bfloat16Test, MlpsAreOfRoundedFactorsForwardAndBackward) {
  for (const ProductShape& shape : kProductShapes) {
    ExpectClose(RunRoundedMlp(shape), ExpectedMlp(shape), 5e-4, shape.why);
    ExpectEqualByThreads([&] { return RunRoundedMlp(shape); }, shape.why);
  }
}

OpOutcome RunRoundedLinear(const ProductShape& shape, spec::Lowering lowering, bool bias) {
  const ProductLeaves l(shape);
  const LoweringScope scope(lowering, spec::Precision::kBfloat16);
  const Tensor y = LinearRows(l.x, l.w1, bias ? l.b1 : Tensor());
  at::manual_seed(7);
  torch::autograd::backward({y}, {at::randn_like(y)});
  return {{"y", y.detach()}, {"x", l.x.grad()}, {"w1", l.w1.grad()}};
}

TEST_F(Bfloat16Test, LinearMapsAreOfRoundedFactors) {
  for (const ProductShape& shape : kProductShapes) {
    for (const bool bias : {false, true}) {
      const ProductLeaves l(shape);
      at::manual_seed(7);
      const Tensor g = at::randn({shape.rows, shape.hidden});
      Tensor y = Rounded(l.x).mm(Rounded(l.w1).t());
      if (bias) y = y + l.b1.detach();
      const OpOutcome expected = {{"y", Single(y)},
                                  {"x", Single(Rounded(g).mm(Rounded(l.w1)))},
                                  {"w1", Single(Rounded(g).t().mm(Rounded(l.x)))}};
      ExpectClose(RunRoundedLinear(shape, spec::Lowering::kAuto, bias), expected, 1e-6, shape.why);
      // PyTorch's own operator rounds its results, too.
      ExpectClose(RunRoundedLinear(shape, spec::Lowering::kPlain, bias), expected, 8e-3,
                  std::string(shape.why) + ", plain");
    }
  }
}

struct RoundedLayer {
  RoundedLayer() {
    at::manual_seed(11);
    constexpr int64_t kNodes = 300, kEdges = 650, kWidth = 40;
    const auto longs = at::TensorOptions().dtype(at::kLong);
    edges.source = at::randint(0, kNodes, {kEdges}, longs);
    edges.target = std::get<0>(at::sort(at::randint(0, kNodes, {kEdges}, longs)));
    edges.index = IndexEdges(edges.source, edges.target, kNodes);
    edges.rows = Leaf(at::randn({5, kWidth}));
    edges.code = at::randint(0, 5, {kEdges}, at::kInt);
    const auto weight = [](at::IntArrayRef sizes) { return Leaf(at::randn(sizes) / 6); };
    w = {.w1 = weight({kWidth, kWidth}),
         .b1 = weight({kWidth}),
         .w2 = weight({kWidth, kWidth}),
         .b2 = weight({kWidth}),
         .norm_weight = Leaf(at::rand({kWidth}) + 0.5),
         .norm_bias = weight({kWidth}),
         .running_mean = at::zeros({kWidth}),
         .running_var = at::ones({kWidth}),
         .batches_tracked = at::zeros({}, longs)};
    x = Leaf(at::randn({kNodes, kWidth}));
    real = at::full({1}, kNodes, longs);
    step = at::full({1}, 3, longs);
    grad = at::randn({kNodes, kWidth});
  }
  OpOutcome Of(const Tensor& y) const {
    torch::autograd::backward({y}, {grad});
    return {{"y", y.detach()},        {"x", x.grad()},        {"edges", edges.rows.grad()},
            {"w1", w.w1.grad()},      {"w2", w.w2.grad()},    {"b2", w.b2.grad()},
            {"mean", w.running_mean}, {"var", w.running_var}, {"norm", w.norm_bias.grad()}};
  }
  GineEdges edges;
  GineWeights w;
  Tensor x, real, step, grad;
};

TEST_F(Bfloat16Test, AFusedLayerIsWhatItsPartsAre) {
  const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
  const RoundedLayer fused, parts;
  const Tensor product = Mlp(SumGineMessages(parts.x, parts.edges), parts.w.w1, parts.w.b1, parts.w.w2, parts.w.b2);
  const Tensor expected = MaskedBatchNormRelu(product, parts.real, parts.w.norm_weight, parts.w.norm_bias,
                                              parts.w.running_mean, parts.w.running_var);
  ExpectClose(fused.Of(GineLayer(fused.x, fused.edges, fused.real, fused.w, {.step = fused.step})), parts.Of(expected),
              2e-3, "training");
  const RoundedLayer again;
  const at::NoGradGuard no_grad;
  const Tensor mlp = Mlp(SumGineMessages(again.x, again.edges), again.w.w1, again.w.b1, again.w.w2, again.w.b2);
  ExpectClose({{"y", GineLayerEval(again.x, again.edges, again.real, again.w)}},
              {{"y", BatchNormReluEval(mlp, again.w.norm_weight, again.w.norm_bias, again.w.running_mean,
                                       again.w.running_var)}},
              2e-3, "evaluation");
}

TEST_F(Bfloat16Test, TheNumberOfThreadsChangesNoBitOfALayer) {
  const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
  ExpectEqualByThreads(
      [] {
        const RoundedLayer layer;
        return layer.Of(GineLayer(layer.x, layer.edges, layer.real, layer.w, {.step = layer.step}));
      },
      "threads");
}

TEST_F(Bfloat16Test, WhatIsNoNumberStaysNone) {
  const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
  Tensor x = at::ones({3, 40});
  x[1][7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor weight = at::ones({50, 40}), bias = at::zeros({50});
  const Tensor y = GraphConv(x, {}, weight, bias, {}, {.relu = true});
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
  EXPECT_TRUE(y[0].eq(40).all().item<bool>());
  EXPECT_TRUE(y[2].eq(40).all().item<bool>());
}

TEST_F(Bfloat16Test, Float64IsNotRounded) {
  const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const Tensor x = at::full({2, 3}, 1.001, options), weight = at::ones({4, 3}, options);
  EXPECT_TRUE(at::allclose(LinearRows(x, weight), at::full({2, 4}, 3.003, options), 1e-12, 1e-12));
}

}  // namespace
}  // namespace permafrost::nn
