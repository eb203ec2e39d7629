#include "nn/ops/rows_by_index.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

TEST(EmbeddingSum, AgreesWithIndexSelect) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {50, 13}, {900, 70}, {0, 8}}) {
    at::manual_seed(rows);
    const Tensor features = at::cat({at::randint(0, 5, {rows, 1}), at::randint(0, 9, {rows, 1})}, 1).to(at::kLong);
    const Tensor grad = at::randn({rows, width}, at::kDouble);
    const Tensor a = Leaf(at::randn({5, width}, at::kDouble)), b = Leaf(at::randn({9, width}, at::kDouble));
    const Tensor c = Leaf(a), d = Leaf(b);
    const Tensor y = EmbeddingSum(features, {a, b});
    const Tensor expected = c.index_select(0, features.select(1, 0)) + d.index_select(0, features.select(1, 1));
    EXPECT_TRUE(at::equal(y, expected));
    torch::autograd::backward({y}, {grad});
    torch::autograd::backward({expected}, {grad});
    EXPECT_TRUE(at::allclose(a.grad(), c.grad(), 1e-12, 1e-12) && at::allclose(b.grad(), d.grad(), 1e-12, 1e-12));
  }
}

TEST(EmbeddingSum, TheNumberOfThreadsChangesNoBit) {
  const int threads = at::get_num_threads();
  const Tensor features = at::randint(0, 3, {4000, 2}).to(at::kLong), grad = at::randn({4000, 96});
  Tensor first;
  for (const int now : {1, 4}) {
    at::set_num_threads(now);
    const Tensor a = Leaf(at::ones({3, 96})), b = Leaf(at::ones({3, 96}));
    torch::autograd::backward({EmbeddingSum(features, {a, b})}, {grad});
    const Tensor both = at::cat({a.grad(), b.grad()});
    if (now == 1) first = both;
    EXPECT_TRUE(at::equal(both, first));
  }
  at::set_num_threads(threads);
}

TEST(RowEmbedding, AgreesWithTheEmbeddingOfPyTorch) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{40}, {7, 3}, {0}, {2, 0, 4}}) {
    const Tensor indices = at::randint(0, 6, sizes, at::kLong);
    const Tensor table = Leaf(at::randn({6, 9}, at::kDouble)), other = Leaf(table);
    const Tensor y = RowEmbedding(table, indices), expected = at::embedding(other, indices);
    EXPECT_TRUE(at::equal(y, expected)) << indices.sizes();
    const Tensor grad = at::randn(y.sizes(), at::kDouble);
    torch::autograd::backward({y}, {grad});
    torch::autograd::backward({expected}, {grad});
    EXPECT_TRUE(at::allclose(table.grad(), other.grad(), 1e-12, 1e-12)) << indices.sizes();
  }
}

TEST(RowEmbedding, NamesAnIndexOutsideOfTheTable) {
  const Tensor table = at::randn({6, 9});
  for (const int64_t outside : {-1, 6}) {
    try {
      RowEmbedding(table, at::tensor({int64_t{0}, outside}, at::kLong));
      ADD_FAILURE() << outside;
    } catch (const c10::IndexError& error) {
      EXPECT_THAT(error.what_without_backtrace(),
                  testing::HasSubstr("index " + std::to_string(outside) + " is not in [0, 6)"));
    }
  }
  EXPECT_THROW(RowEmbedding(table, at::zeros({2}, at::kInt)), c10::Error);
}

TEST(CombinedCategories, AreTheSumsOfTheirTables) {
  const std::vector<Tensor> tables{at::randn({5, 6}), at::randn({3, 6}), at::randn({2, 6})};
  const Tensor features =
      at::cat({at::randint(0, 5, {40, 1}), at::randint(0, 3, {40, 1}), at::randint(0, 2, {40, 1})}, 1).to(at::kLong);
  const Tensor codes = CombineCategories(features, {5, 3, 2});
  EXPECT_EQ(codes.scalar_type(), at::kInt);
  EXPECT_TRUE(at::allclose(CombineTables(tables).index_select(0, codes), EmbeddingSum(features, tables)));
}

TEST(PoolRows, AgreesWithIndexAdd) {
  const Tensor graph = at::tensor({0, 0, 0, 2, 3, 3}, at::kLong);  // graphs 1 and 4 have no rows
  const Tensor grad = at::randn({5, 7}, at::kDouble), sizes = at::tensor({3, 1, 1, 2, 1}, at::kDouble).unsqueeze(1);
  for (const spec::Pooling pooling : {spec::Pooling::kSum, spec::Pooling::kMean}) {
    const Tensor x = Leaf(at::randn({6, 7}, at::kDouble)), z = Leaf(x);
    const Tensor y = PoolRows(x, graph, 5, pooling);
    Tensor expected = at::zeros({5, 7}, at::kDouble).index_add(0, graph, z);
    if (pooling == spec::Pooling::kMean) expected = expected / sizes;
    EXPECT_TRUE(at::allclose(y, expected, 1e-12, 1e-12));
    torch::autograd::backward({y}, {grad});
    torch::autograd::backward({expected}, {grad});
    EXPECT_TRUE(at::allclose(x.grad(), z.grad(), 1e-12, 1e-12));
  }
}

TEST(PoolRows, AGraphOutOfRangeIsAnError) {
  EXPECT_THROW(PoolRows(at::ones({2, 3}), at::tensor({0, 5}, at::kLong), 5, spec::Pooling::kSum), c10::Error);
}

// Makes rows that occur in many pairs, twice in one pair, or in no pair.
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
