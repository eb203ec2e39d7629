#include "nn/ops/segment_ops.h"

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

struct MaxCase {
  int64_t nodes = 0, rows = 0, width = 0, most = 0, padding = 0;
  at::ScalarType type = at::kDouble;
};

// Segments of 0..most entries, some of them equal; values of a few levels, so that many are equally large.
OpOutcome RunMax(const MaxCase& c) {
  std::mt19937 random(5);
  std::vector<int64_t> offsets{0}, sources;
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto entries = static_cast<int64_t>(random() % static_cast<uint64_t>(c.most + 1));
    for (int64_t e = 0; e < entries; ++e) {
      sources.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(c.nodes)));
    }
    offsets.push_back(std::ssize(sources));
  }
  // As a layer's block has edges of the layers below, whose rows are beyond its own.
  sources.resize(sources.size() + static_cast<size_t>(c.padding), c.nodes + 3);
  std::vector<double> levels;
  for (int64_t i = 0; i < c.nodes * c.width; ++i) levels.push_back(static_cast<double>(random() % 4) - 2);
  const Tensor x = Leaf(at::tensor(levels, at::kDouble).to(c.type).reshape({c.nodes, c.width}));
  const Tensor out = SegmentMax(x, at::tensor(offsets, at::kLong), at::tensor(sources, at::kLong));
  const Tensor weight = at::cos(at::arange(out.numel(), c.type)).reshape(out.sizes());
  return {{"largest", out.detach()}, {"gradient", torch::autograd::grad({(out * weight).sum()}, {x}).front()}};
}

TEST(SegmentMax, AgreesWithScatterReduceAlsoWhereValuesAreEqual) {
  for (const MaxCase& c :
       {MaxCase{.nodes = 5, .rows = 7, .width = 3, .most = 4}, MaxCase{.nodes = 1, .rows = 1, .width = 1, .most = 0},
        MaxCase{.nodes = 40, .rows = 30, .width = 17, .most = 6, .padding = 9},
        MaxCase{.nodes = 700, .rows = 600, .width = 64, .most = 12, .padding = 100, .type = at::kFloat}}) {
    const std::string why = std::to_string(c.rows) + " x " + std::to_string(c.width);
    const OpOutcome fused = RunMax(c);
    {
      const LoweringScope scope(spec::Lowering::kPlain);
      nn::ExpectClose(fused, RunMax(c), c.type == at::kFloat ? 1e-6 : 1e-13, why);
    }
    ExpectEqualByThreads([&] { return RunMax(c); }, why);
  }
}

TEST(SegmentMax, OfNegativeValuesAndOfNone) {
  const Tensor x = Leaf(at::tensor({-3.0, -1.0, -2.0}, at::kDouble).unsqueeze(1));
  const Tensor out = SegmentMax(x, at::tensor({0, 2, 2, 5}, at::kLong), at::tensor({0, 2, 1, 1, 0}, at::kLong));
  EXPECT_TRUE(out.equal(at::tensor({-2.0, 0.0, -1.0}, at::kDouble).unsqueeze(1)));
  const Tensor gradient = torch::autograd::grad({out.sum()}, {x}).front();
  EXPECT_TRUE(gradient.equal(at::tensor({0.0, 1.0, 1.0}, at::kDouble).unsqueeze(1))) << "an edge that is there twice";
}

// A model gives the transpose of the whole block, of whose rows a layer takes the first.
TEST(SegmentMax, TheTransposeMayBeOfMoreRows) {
  const Tensor offsets = at::tensor({0, 2, 3, 5}, at::kLong), sources = at::tensor({0, 1, 2, 2, 0}, at::kLong);
  const CsrTranspose all = TransposeCsr(offsets, sources, 3);
  const Tensor first = offsets.narrow(0, 0, 3);
  Tensor gradients[2];
  for (int i = 0; i < 2; ++i) {
    const Tensor x = Leaf(at::tensor({1.0, 4.0, 2.0}, at::kDouble).unsqueeze(1));
    const Tensor out = i == 0 ? SegmentMax(x, first, sources) : SegmentMax(x, first, sources, all);
    gradients[i] = torch::autograd::grad({out.sum()}, {x}).front();
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
  EXPECT_TRUE(gradients[0].equal(at::tensor({0.0, 1.0, 1.0}, at::kDouble).unsqueeze(1)));
}

TEST(SegmentMax, RefusesIndicesOfOtherKinds) {
  const Tensor x = at::zeros({4, 2}), offsets = at::tensor({0, 1}, at::kLong), sources = at::tensor({0}, at::kLong);
  EXPECT_THROW(SegmentMax(x, offsets.to(at::kInt), sources), c10::Error);
  EXPECT_THROW(SegmentMax(x, offsets, sources.to(at::kInt)), c10::Error);
  EXPECT_THROW(SegmentMax(x.select(1, 0), offsets, sources), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
