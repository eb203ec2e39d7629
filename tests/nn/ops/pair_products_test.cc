#include "nn/ops/rows_by_index.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Rows that stand in many pairs, twice in one, and in none.
struct PairCase {
  int64_t rows = 0, width = 0, pairs = 0;
  at::ScalarType type = at::kDouble;
};

OpOutcome RunPairs(const PairCase& c) {
  const Tensor x = Leaf(at::sin(at::arange(c.rows * c.width, c.type)).reshape({c.rows, c.width}));
  const Tensor p = at::arange(c.pairs, at::kLong);
  const Tensor first = (p * 7).remainder(std::max<int64_t>(1, c.rows - 1)), second = (p * p).remainder(c.rows);
  const Tensor out = PairProducts(x, first, second);
  const Tensor weight = at::cos(at::arange(out.numel(), c.type)).reshape(out.sizes());
  return {{"products", out.detach()}, {"gradient", torch::autograd::grad({(out * weight).sum()}, {x}).front()}};
}

TEST(PairProducts, AgreesWithTheOperatorsOfPyTorch) {
  for (const PairCase& c : {PairCase{5, 3, 11}, PairCase{1, 1, 4}, PairCase{40, 64, 0}, PairCase{40, 17, 300},
                            PairCase{700, 64, 9000, at::kFloat}}) {
    const std::string why = std::to_string(c.rows) + " x " + std::to_string(c.width);
    const OpOutcome fused = RunPairs(c);
    for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
      const LoweringScope scope(lowering);
      nn::ExpectClose(fused, RunPairs(c), c.type == at::kFloat ? 1e-6 : 1e-13, why);
    }
    ExpectEqualByThreads([&] { return RunPairs(c); }, why);
  }
}

TEST(PairProducts, RefusesPairsOfOtherKinds) {
  const Tensor x = at::zeros({4, 2});
  EXPECT_THROW(PairProducts(x, at::zeros({3}, at::kInt), at::zeros({3}, at::kLong)), c10::Error);
  EXPECT_THROW(PairProducts(x, at::zeros({3}, at::kLong), at::zeros({2}, at::kLong)), c10::Error);
  EXPECT_THROW(PairProducts(x.select(1, 0), at::zeros({3}, at::kLong), at::zeros({3}, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
