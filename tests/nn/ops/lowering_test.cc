#include "nn/ops/lowering.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "nn/differences.h"
#include "nn/leaf.h"
#include "nn/loss.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

Tensor Values(at::IntArrayRef sizes, double phase) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 0.7 + phase).sin().reshape(sizes);
}

TEST(Lowering, TheCpuIsFusedUnlessAskedOtherwise) {
  const Tensor x = at::zeros({1});
  EXPECT_TRUE(IsFused(x));
  EXPECT_FALSE(IsShapeFree(x));
  {
    const LoweringScope plain(spec::Lowering::kPlain);
    EXPECT_FALSE(IsFused(x));
    EXPECT_FALSE(IsShapeFree(x));
    const LoweringScope shape_free(spec::Lowering::kShapeFree);
    EXPECT_FALSE(IsFused(x));
    EXPECT_TRUE(IsShapeFree(x));
  }
  EXPECT_TRUE(IsFused(x)) << "a scope ends";
}

// The pieces of models, each with all of its inputs that have a gradient.
struct Piece {
  std::string why;
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> call;
};
std::vector<Piece> Pieces() {
  const Tensor index = at::tensor({2, 0, 2, 4}, at::kLong), codes = index.to(at::kInt);
  return {
      {"a linear", {Values({5, 3}, 0), Values({2, 3}, 1)}, [](const auto& in) { return LinearRows(in[0], in[1]); }},
      {"a linear with a bias",
       {Values({5, 3}, 0), Values({2, 3}, 1), Values({2}, 2)},
       [](const auto& in) { return LinearRows(in[0], in[1], in[2]); }},
      {"a linear of transposed rows",
       {Values({3, 5}, 0), Values({2, 3}, 1)},
       [](const auto& in) { return LinearRows(in[0].t(), in[1]); }},
      {"ReLU", {Values({5, 3}, 0.1)}, [](const auto& in) { return ReluRows(in[0]); }},
      {"rows", {Values({5, 3}, 0)}, [=](const auto& in) { return SelectRows(in[0], index); }},
      {"rows by int32", {Values({5, 3}, 0)}, [=](const auto& in) { return SelectRows(in[0], codes); }},
      {"values of one column", {Values({5}, 0)}, [=](const auto& in) { return SelectRows(in[0], index); }},
      {"rows added",
       {Values({5, 3}, 0), Values({4, 3}, 1)},
       [=](const auto& in) { return AddRows(in[0], index, in[1]); }},
      {"values added to one column",
       {Values({5}, 0), Values({4}, 1)},
       [=](const auto& in) { return AddRows(in[0], index, in[1]); }},
  };
}

TEST(Lowering, PiecesAndTheirGradientsAreThePlainOnes) {
  for (const Piece& piece : Pieces()) {
    const auto run = [&piece](spec::Lowering lowering) {
      const LoweringScope scope(lowering);
      std::vector<Tensor> leaves;
      leaves.reserve(piece.inputs.size());
      for (const Tensor& input : piece.inputs) leaves.push_back(Leaf(input));
      const Tensor out = piece.call(leaves);
      std::vector<Tensor> all = torch::autograd::grad({(out * out).sum()}, leaves);
      all.push_back(out);
      return all;
    };
    const auto plain = run(spec::Lowering::kPlain), shape_free = run(spec::Lowering::kShapeFree);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(at::allclose(plain[i], shape_free[i], 1e-12, 1e-12)) << piece.why << ": " << i;
    }
    const LoweringScope scope(spec::Lowering::kShapeFree);
    ExpectGradientsOfDifferences(
        piece.inputs, [&](const auto& in) { return piece.call(in).square().sum(); }, 1e-6, 1e-8, piece.why);
  }
}

TEST(Lowering, ShapeFreeLossesAreTheFusedOnes) {
  const double missing = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* why;
    spec::Loss loss;
    Tensor prediction, labels, weights;
  } kCases[] = {
      {"L1, one label missing, one met",
       spec::Loss::kL1,
       at::tensor({1.5, -2.0, 3.0, 9.0}, at::kDouble).view({4, 1}),
       at::tensor({1.0, -2.0, missing, 10.0}, at::kDouble).view({4, 1}),
       {}},
      {"MSE", spec::Loss::kMse, Values({4, 2}, 0), Values({4, 2}, 1), {}},
      {"cross entropy with large logits",
       spec::Loss::kCrossEntropy,
       100 * Values({4, 3}, 0),
       at::tensor({0.0, 2.0, missing, 1.0}, at::kDouble).view({4, 1}),
       {}},
      {"weighted cross entropy", spec::Loss::kCrossEntropy, Values({4, 3}, 0),
       at::tensor({0.0, 2.0, missing, 1.0}, at::kDouble).view({4, 1}), at::tensor({1.0, 2.0, 0.5}, at::kDouble)},
      {"BCE with large logits",
       spec::Loss::kBce,
       100 * Values({3, 2}, 0),
       at::tensor({0.0, 1.0, 1.0, missing, 0.0, 1.0}, at::kDouble).view({3, 2}),
       {}},
  };
  for (const auto& c : kCases) {
    const auto run = [&c](spec::Lowering lowering) {
      const LoweringScope scope(lowering);
      const Tensor prediction = Leaf(c.prediction);
      const LossTerms terms = ComputeLoss(c.loss, prediction, c.labels, c.weights);
      return std::vector<Tensor>{terms.mean, terms.sum, terms.count,
                                 torch::autograd::grad({terms.mean}, {prediction})[0]};
    };
    const auto fused = run(spec::Lowering::kAuto), shape_free = run(spec::Lowering::kShapeFree);
    for (size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(at::allclose(fused[i], shape_free[i], 1e-12, 1e-12)) << c.why << ": " << i;
    }
  }
}

}  // namespace
}  // namespace permafrost::nn
