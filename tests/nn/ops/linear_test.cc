#include "nn/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nn/differences.h"
#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using testing::HasSubstr;

struct LinearCase {
  const char* why;
  std::vector<int64_t> x;  // sizes
  int64_t out;
  bool strided = false;  // x, the weight and the output's gradient are not contiguous
  bool bias = true;
  const char* frozen = "";  // which of "x", "weight" and "bias" get no gradient
};
const LinearCase kLinearCases[] = {
    {"no rows", {0, 5}, 4},
    {"one row", {1, 7}, 9},
    {"a single column", {33, 1}, 5},
    {"a head", {33, 64}, 1},
    {"as wide as vectors", {256, 64}, 96},
    {"several chunks, widths off the vector's", {701, 45}, 19},
    {"a wide one", {150, 300}, 310},
    {"large enough for threads", {3000, 64}, 64},
    {"x is one row of one dimension", {17}, 6},
    {"x has three dimensions", {9, 31, 13}, 7},
    {"x has three dimensions without rows", {9, 0, 13}, 7},
    {"not contiguous", {300, 21}, 34, /*strided=*/true},
    {"not contiguous, of three dimensions", {5, 8, 11}, 6, /*strided=*/true},
    {"no bias", {300, 21}, 34, false, /*bias=*/false},
    {"x takes no gradient", {300, 21}, 34, false, true, "x"},
    {"the weight takes no gradient", {300, 21}, 34, false, true, "weight"},
    {"the bias takes no gradient", {300, 21}, 34, false, true, "bias"},
    {"x alone takes a gradient", {300, 21}, 34, false, true, "weight bias"},
    {"the weight alone takes a gradient", {300, 21}, 34, false, true, "x bias"},
    {"the bias alone takes a gradient", {300, 21}, 34, false, true, "x weight"},
    {"x alone, without a bias", {300, 21}, 34, false, false, "weight"},
};

// Returns random values. If `strided`, their first dimension is the innermost.
Tensor Numbers(std::vector<int64_t> sizes, at::ScalarType type, bool strided) {
  if (!strided) return at::randn(sizes, type);
  std::ranges::reverse(sizes);
  std::vector<int64_t> order;
  for (int64_t d = std::ssize(sizes); d > 0; --d) order.push_back(d - 1);
  return at::randn(sizes, type).permute(order);
}

Tensor MapRows(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu, bool fused) {
  if (fused) return RowLinear(x, weight, bias, relu);
  const Tensor y = at::linear(x, weight, bias);
  return relu ? y.relu() : y;
}

// Returns the output and the gradient of every input that requires one. Expects the other inputs to have none.
OpOutcome RunLinear(const LinearCase& c, at::ScalarType type, bool relu, bool fused) {
  at::manual_seed(c.out + std::ssize(c.x));
  const auto leaf = [&](const std::string& name, const std::vector<int64_t>& sizes, bool strided) {
    const bool frozen = std::string(c.frozen).find(name) != std::string::npos;
    return (Numbers(sizes, type, strided) / 4).set_requires_grad(!frozen);
  };
  const Tensor x = leaf("x", c.x, c.strided), weight = leaf("weight", {c.out, c.x.back()}, c.strided),
               bias = c.bias ? leaf("bias", {c.out}, false) : Tensor();
  EXPECT_EQ(x.is_contiguous() && weight.is_contiguous(), !c.strided) << c.why;
  const Tensor y = MapRows(x, weight, bias, relu, fused);
  torch::autograd::backward({y}, {Numbers(y.sizes().vec(), type, c.strided)});
  OpOutcome outcome{{"y", y.detach()}};
  for (const auto& [name, t] : {std::pair("x", x), std::pair("weight", weight), std::pair("bias", bias)}) {
    if (!t.defined()) continue;
    EXPECT_EQ(t.grad().defined(), t.requires_grad()) << c.why << ": " << name;
    if (t.grad().defined()) outcome.emplace_back(name, t.grad());
  }
  return outcome;
}

TEST(RowLinear, AgreesWithPyTorchsOperators) {
  for (const LinearCase& c : kLinearCases) {
    for (const bool relu : {false, true}) {
      const std::string why = std::string(c.why) + (relu ? ", ReLU" : "");
      ExpectClose(RunLinear(c, at::kDouble, relu, true), RunLinear(c, at::kDouble, relu, false), 1e-11, why);
      ExpectClose(RunLinear(c, at::kFloat, relu, true), RunLinear(c, at::kFloat, relu, false), 1e-5,
                  why + " in float32");
    }
  }
}

TEST(RowLinear, TheNumberOfThreadsChangesNoBit) {
  for (const LinearCase& c : kLinearCases)
    for (const bool relu : {false, true})
      ExpectEqualByThreads([&] { return RunLinear(c, at::kFloat, relu, true); }, c.why);
}

TEST(RowLinear, HasTheGradientsOfDifferences) {
  at::manual_seed(4);
  const Tensor x = at::randn({150, 13}, at::kDouble), weight = at::randn({9, 13}, at::kDouble),
               bias = at::randn({9}, at::kDouble), factors = at::randn({150, 9}, at::kDouble);
  for (const bool relu : {false, true}) {
    ExpectGradientsOfDifferences(
        {x, weight, bias},
        [&](const std::vector<Tensor>& t) { return (RowLinear(t[0], t[1], t[2], relu) * factors).sum(); }, 1e-6, 1e-6,
        relu ? "with ReLU" : "without");
  }
}

// Expects NaN and infinity at the same places as in PyTorch, for each of x, weight, bias and the output's gradient.
TEST(RowLinear, NanPassesAsInPyTorch) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const double strange : {kNan, kInf}) {
      for (size_t place = 0; place < 4; ++place) {
        for (const bool relu : {false, true}) {
          const auto run = [&](bool fused) -> std::vector<Tensor> {
            at::manual_seed(5);
            std::vector<Tensor> t{at::randn({140, 6}, type), at::randn({5, 6}, type), at::randn({5}, type),
                                  at::randn({140, 5}, type)};
            t[place].view({-1})[3] = strange;
            const Tensor x = Leaf(t[0]), weight = Leaf(t[1]), bias = Leaf(t[2]);
            const Tensor y = MapRows(x, weight, bias, relu, fused);
            torch::autograd::backward({y}, {t[3]});
            return {y.detach(), x.grad(), weight.grad(), bias.grad()};
          };
          const auto got = run(true), want = run(false);
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_TRUE(at::allclose(got[i], want[i], 1e-4, 1e-4, /*equal_nan=*/true))
                << strange << " in tensor " << place << (relu ? ", ReLU" : "") << ": value " << i << " of " << type;
          }
          if (strange != kInf) {
            EXPECT_EQ(got[0].isnan().any().item<bool>(), place < 3) << place;
          }
        }
      }
    }
  }
}

// A program's products are float32, and the job's precision decides whether their factors are rounded.
TEST(RowLinear, RoundsFactorsToBfloat16WhereAskedTo) {
  if (!CanRoundFactors()) GTEST_SKIP() << "this processor has no AVX512-BF16";
  const LinearCase c{"several chunks", {701, 45}, 19};
  const auto rounded = [&] {
    const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
    return RunLinear(c, at::kFloat, /*relu=*/true, /*fused=*/true);
  };
  const OpOutcome got = rounded(), full = RunLinear(c, at::kFloat, true, true);
  EXPECT_FALSE(at::equal(got[0].second, full[0].second));
  EXPECT_TRUE(at::allclose(got[0].second, full[0].second, 0.02, 0.02));
  ExpectEqualByThreads(rounded, c.why);
}

TEST(RowLinear, WritesNoHistoryWhereNothingTakesAGradient) {
  EXPECT_FALSE(RowLinear(at::ones({2, 3}), at::ones({4, 3}), at::ones({4}), true).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(RowLinear(Leaf(at::ones({2, 3})), Leaf(at::ones({4, 3})), {}, false).requires_grad());
}

TEST(RowLinear, WhatDoesNotFitIsNamed) {
  const Tensor x = at::ones({2, 3}), weight = at::ones({4, 3}), bias = at::ones({4});
  const struct {
    const char* why;
    Tensor x, weight, bias;
    const char* message;
  } kCases[] = {
      {"other columns", x, at::ones({4, 5}), bias, "x CPUFloatType[2, 3] and weight CPUFloatType[4, 5] do not match"},
      {"a weight of one dimension", x, at::ones({3}), bias, "and weight CPUFloatType[3] do not match"},
      {"a number", at::ones({}), weight, bias, "x CPUFloatType[] and weight"},
      {"other types", x.to(at::kDouble), weight, bias, "x CPUDoubleType[2, 3] and weight CPUFloatType[4, 3]"},
      {"integers", x.to(at::kLong), weight.to(at::kLong), bias.to(at::kLong), "x CPULongType[2, 3] and weight"},
      {"a bias of another size", x, weight, at::ones({3}), "the bias must be [4] of x's type, not CPUFloatType[3]"},
      {"a bias of another type", x, weight, bias.to(at::kDouble), "the bias must be [4] of x's type, not CPUDouble"},
  };
  for (const auto& c : kCases) {
    try {
      RowLinear(c.x, c.weight, c.bias, true);
      ADD_FAILURE() << c.why;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(c.message)) << c.why;
    }
  }
}

struct MlpShape {
  const char* why;
  int64_t rows, in, hidden, out;
};
const MlpShape kMlpShapes[] = {{"a head", 33, 64, 32, 1},
                               {"no rows", 0, 5, 4, 3},
                               {"several chunks, widths off the vector's", 700, 45, 71, 19},
                               {"a wide one", 300, 300, 300, 300}};

// Returns the output and the gradients of x, w1, b1, w2 and b2.
std::vector<Tensor> RunMlp(const MlpShape& shape, at::ScalarType type, bool fused) {
  at::manual_seed(shape.rows + shape.hidden);
  const auto make = [&](at::IntArrayRef sizes) { return Leaf(at::randn(sizes, at::TensorOptions().dtype(type)) / 4); };
  std::vector<Tensor> leaves{make({shape.rows, shape.in}), make({shape.hidden, shape.in}), make({shape.hidden}),
                             make({shape.out, shape.hidden}), make({shape.out})};
  const Tensor grad = at::randn({shape.rows, shape.out}, at::TensorOptions().dtype(type));
  const Tensor y = fused ? Mlp(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4])
                         : at::addmm(leaves[4], at::addmm(leaves[2], leaves[0], leaves[1].t()).relu(), leaves[3].t());
  torch::autograd::backward({y}, {grad});
  std::vector<Tensor> values{y.detach()};
  for (const Tensor& leaf : leaves) values.push_back(leaf.grad());
  return values;
}

TEST(Mlp, AgreesWithPyTorchsOperators) {
  for (const MlpShape& shape : kMlpShapes) {
    const auto fused = RunMlp(shape, at::kDouble, true), plain = RunMlp(shape, at::kDouble, false);
    for (size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(at::allclose(fused[i], plain[i], 1e-11, 1e-11)) << shape.why << ": value " << i;
    }
    const auto single = RunMlp(shape, at::kFloat, true), of_torch = RunMlp(shape, at::kFloat, false);
    for (size_t i = 0; i < single.size(); ++i) {
      EXPECT_TRUE(at::allclose(single[i], of_torch[i], 1e-4, 1e-4)) << shape.why << ": value " << i << " in float32";
    }
  }
}

TEST(Mlp, ANaNPassesBackAsInPyTorch) {
  const auto run = [](bool fused) {
    const Tensor x = Leaf(at::ones({3, 4}, at::kDouble)), w = at::ones({4, 4}, at::kDouble),
                 b = at::zeros({4}, at::kDouble);
    {
      const at::NoGradGuard no_grad;
      x[1][2] = std::numeric_limits<double>::quiet_NaN();
    }
    const Tensor y = fused ? Mlp(x, w, b, w, b) : at::addmm(b, at::addmm(b, x, w.t()).relu(), w.t());
    torch::autograd::backward({y}, {at::ones_like(y)});
    return x.grad();
  };
  EXPECT_TRUE(at::allclose(run(true), run(false), 1e-12, 1e-12, /*equal_nan=*/true)) << run(true) << run(false);
}

TEST(Mlp, TheNumberOfThreadsChangesNoBit) {
  const int threads = at::get_num_threads();
  for (const MlpShape& shape : kMlpShapes) {
    at::set_num_threads(1);
    const auto one = RunMlp(shape, at::kFloat, true);
    at::set_num_threads(4);
    const auto four = RunMlp(shape, at::kFloat, true);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], four[i])) << shape.why << ": value " << i;
  }
  at::set_num_threads(threads);
}

TEST(Mlp, WidthsThatDoNotMatchAreNamed) {
  EXPECT_THROW(Mlp(at::ones({2, 3}), at::ones({4, 5}), at::ones({4}), at::ones({1, 4}), at::ones({1})), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
