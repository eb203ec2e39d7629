#include "nn/ops/batch_norm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nn/differences.h"
#include "nn/leaf.h"
#include "nn/op_outcome.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using testing::HasSubstr;

// x [rows, columns], weight and bias [columns], running mean and variance, and the output's gradient.
struct RowNormInputs {
  RowNormInputs(int64_t rows, int64_t columns, at::ScalarType type, bool strided = false) {
    at::manual_seed(rows * 1000 + columns);
    const auto make = [&] { return strided ? at::randn({columns, rows}, type).t() : at::randn({rows, columns}, type); };
    x = make() * 3 + 1;
    weight = at::randn({columns}, type) + 0.5;
    bias = at::randn({columns}, type);
    mean = at::randn({columns}, type);
    var = at::rand({columns}, type) + 0.5;
    grad = make();
  }
  Tensor x, weight, bias, mean, var, grad;
};

constexpr BatchNormOptions kNormOptions{.momentum = 0.3, .eps = 1e-3};

Tensor Normalized(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor mean, Tensor var, bool relu,
                  bool fused) {
  if (fused) return RowBatchNorm(x, weight, bias, mean, var, kNormOptions, relu);
  const Tensor y = at::batch_norm(x, weight, bias, mean, var, /*training=*/true, kNormOptions.momentum,
                                  kNormOptions.eps, /*cudnn_enabled=*/false);
  return relu ? y.relu() : y;
}

OpOutcome RunRowNorm(const RowNormInputs& in, bool relu, bool fused) {
  const Tensor x = Leaf(in.x), weight = Leaf(in.weight), bias = Leaf(in.bias), mean = in.mean.clone(),
               var = in.var.clone();
  const Tensor y = Normalized(x, weight, bias, mean, var, relu, fused);
  torch::autograd::backward({y}, {in.grad});
  return {{"y", y.detach()},     {"x", x.grad()},        {"weight", weight.grad()},
          {"bias", bias.grad()}, {"running mean", mean}, {"running variance", var}};
}

// Removes the gradient of values near ReLU's kink, which rounding may move to its other side.
RowNormInputs WithoutEdge(RowNormInputs in) {
  const Tensor y = Normalized(in.x, in.weight, in.bias, in.mean.clone(), in.var.clone(), /*relu=*/false, false);
  in.grad.masked_fill_(y.abs() < 1e-4, 0);
  return in;
}

struct RowNormCase {
  const char* why;
  int64_t rows, columns;
  bool strided = false;  // x and the output's gradient are not contiguous
};
const RowNormCase kRowNormCases[] = {
    {"two rows, the fewest that vary", 2, 8}, {"a single column", 17, 1},
    {"columns off the vector's", 20, 71},     {"several chunks", 700, 45},
    {"large enough for threads", 3000, 256},  {"not contiguous", 300, 21, /*strided=*/true}};

TEST(RowNormOperator, AgreesWithPyTorchsOperators) {
  for (const RowNormCase& c : kRowNormCases) {
    for (const bool relu : {false, true}) {
      const std::string why = std::string(c.why) + (relu ? ", ReLU" : "");
      const RowNormInputs doubles(c.rows, c.columns, at::kDouble, c.strided);
      EXPECT_EQ(doubles.x.is_contiguous(), !c.strided);
      ExpectClose(RunRowNorm(doubles, relu, true), RunRowNorm(doubles, relu, false), 1e-11, why);
      const RowNormInputs floats = WithoutEdge(RowNormInputs(c.rows, c.columns, at::kFloat, c.strided));
      ExpectClose(RunRowNorm(floats, relu, true), RunRowNorm(floats, relu, false), 1e-4, why + " in float32");
    }
  }
}

TEST(RowNormOperator, TheNumberOfThreadsChangesNoBit) {
  for (const RowNormCase& c : kRowNormCases) {
    const RowNormInputs in(c.rows, c.columns, at::kFloat, c.strided);
    for (const bool relu : {false, true}) ExpectEqualByThreads([&] { return RunRowNorm(in, relu, true); }, c.why);
  }
}

TEST(RowNormOperator, HasTheGradientsOfDifferences) {
  const RowNormInputs in(150, 9, at::kDouble);
  for (const bool relu : {false, true}) {
    ExpectGradientsOfDifferences(
        {in.x, in.weight, in.bias},
        [&](const std::vector<Tensor>& t) {
          return (Normalized(t[0], t[1], t[2], in.mean.clone(), in.var.clone(), relu, true) * in.grad).sum();
        },
        1e-6, 1e-6, relu ? "with ReLU" : "without");
  }
}

TEST(RowNormOperator, GivesGradientsToThoseThatTakeThem) {
  const RowNormInputs in(40, 6, at::kDouble);
  const OpOutcome all = RunRowNorm(in, /*relu=*/true, /*fused=*/false);
  for (size_t only = 0; only < 3; ++only) {
    std::vector<Tensor> t{in.x.clone(), in.weight.clone(), in.bias.clone()};
    t[only].set_requires_grad(true);
    const Tensor y = Normalized(t[0], t[1], t[2], in.mean.clone(), in.var.clone(), /*relu=*/true, /*fused=*/true);
    torch::autograd::backward({y}, {in.grad});
    for (size_t i = 0; i < t.size(); ++i) EXPECT_EQ(t[i].grad().defined(), i == only) << only << ": " << i;
    EXPECT_TRUE(at::allclose(t[only].grad(), all[1 + only].second, 1e-11, 1e-11)) << only;
  }
}

// Expects NaN at the same places as in PyTorch, for each of x, weight, bias and the output's gradient.
TEST(RowNormOperator, NanPassesAsInPyTorch) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (size_t place = 0; place < 4; ++place) {
      for (const bool relu : {false, true}) {
        RowNormInputs in(140, 6, type);
        Tensor* const all[] = {&in.x, &in.weight, &in.bias, &in.grad};
        all[place]->view({-1})[3] = std::numeric_limits<double>::quiet_NaN();
        const OpOutcome got = RunRowNorm(in, relu, true), want = RunRowNorm(in, relu, false);
        EXPECT_EQ(got[0].second.isnan().any().item<bool>(), place < 3) << place;
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(at::allclose(got[i].second, want[i].second, 1e-4, 1e-4, /*equal_nan=*/true))
              << "NaN in tensor " << place << (relu ? ", ReLU: " : ": ") << got[i].first << " of " << type;
        }
      }
    }
  }
}

// With as many rows as a whole set has, a running float32 sum would be off by a hundredth.
TEST(RowNormOperator, SumsOfManyRowsStayAccurate) {
  RowNormInputs in(300'000, 3, at::kFloat);
  in.grad.add_(2);  // the mean gradient is far from 0, so its sum is large
  in = WithoutEdge(std::move(in));
  RowNormInputs exact = in;
  for (Tensor* t : {&exact.x, &exact.weight, &exact.bias, &exact.mean, &exact.var, &exact.grad}) {
    *t = t->to(at::kDouble);
  }
  const double summed = exact.grad.abs().sum(0).max().item<double>();
  for (const bool relu : {false, true}) {
    const OpOutcome got = RunRowNorm(in, relu, true), want = RunRowNorm(exact, relu, false);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto& [name, value] = want[i];
      const double apart = (got[i].second.to(at::kDouble) - value).abs().max().item<double>();
      const double scale = name == "weight" || name == "bias" ? summed : value.abs().max().item<double>();
      EXPECT_LT(apart, 2e-6 * scale) << name << (relu ? ", ReLU" : "");
    }
  }
}

// One column has equal values, and so no variance. Another varies little compared with its mean, which is far from 0.
TEST(RowNormOperator, ColumnsThatHardlyVaryAreThoseOfPyTorch) {
  RowNormInputs in(300, 4, at::kDouble);
  in.x.select(1, 0).fill_(7);
  in.x.select(1, 1).div_(1000).add_(1000);
  ExpectClose(RunRowNorm(in, false, true), RunRowNorm(in, false, false), 1e-9, "columns that hardly vary");
}

TEST(RowNormOperator, OneRowIsRefusedAsInPyTorchsPython) {
  const RowNormInputs in(1, 3, at::kFloat);
  const Tensor mean = in.mean.clone(), var = in.var.clone();
  try {
    Normalized(in.x, in.weight, in.bias, mean, var, /*relu=*/true, /*fused=*/true);
    ADD_FAILURE() << "not refused";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr("Expected more than 1 value per channel when training, got input size [1, 3]"));
  }
  EXPECT_TRUE(at::equal(mean, in.mean) && at::equal(var, in.var)) << "statistics";
}

TEST(RowNormOperator, NoRowsAreNormalizedToNone) {
  for (const bool relu : {false, true}) {
    const RowNormInputs in(0, 3, at::kDouble);
    ExpectClose(RunRowNorm(in, relu, true), RunRowNorm(in, relu, false), 0, "no rows");
  }
}

TEST(RowNormOperator, TakesAWeightThatIsNotContiguous) {
  const Tensor x = at::randn({5, 4}, at::kDouble), bias = at::zeros({4}, at::kDouble);
  const Tensor mean = at::zeros({4}, at::kDouble), var = at::ones({4}, at::kDouble);
  const auto run = [&](bool fused) {
    const Tensor weight = at::full({1}, 1.5, at::kDouble).set_requires_grad(true);
    const Tensor y = Normalized(x, weight.expand({4}), bias, mean.clone(), var.clone(), /*relu=*/true, fused);
    y.square().sum().backward();
    return OpOutcome{{"y", y.detach()}, {"weight", weight.grad()}};
  };
  ExpectClose(run(true), run(false), 1e-12, "an expanded weight");
}

TEST(RowNormOperator, WhatDoesNotFitIsNamed) {
  const Tensor x = at::ones({4, 3}), column = at::ones({3}), two = at::ones({2});
  constexpr const char* kColumns =
      "weight, bias and running statistics must be [3] of x's type, and the statistics contiguous, not ";
  const struct {
    const char* why;
    Tensor x, weight, bias, mean, var;
    std::string message;
  } kCases[] = {
      {"three dimensions", at::ones({4, 3, 3}), column, column, column, column,
       "x must be a floating [N, D], not CPUFloatType[4, 3, 3]"},
      {"integers", x.to(at::kLong), column, column, column, column, "x must be a floating [N, D], not CPULongType"},
      {"a weight of two", x, two, column, column, column, std::string(kColumns) + "CPUFloatType[2]"},
      {"a bias of two", x, column, two, column, column, std::string(kColumns) + "CPUFloatType[2]"},
      {"a mean of two", x, column, column, two, column, std::string(kColumns) + "CPUFloatType[2]"},
      {"a variance of two", x, column, column, column, two, std::string(kColumns) + "CPUFloatType[2]"},
      {"a mean in float64", x, column, column, column.to(at::kDouble), column,
       std::string(kColumns) + "CPUDoubleType[3]"},
  };
  for (const auto& c : kCases) {
    try {
      Normalized(c.x, c.weight, c.bias, c.mean, c.var, /*relu=*/true, /*fused=*/true);
      ADD_FAILURE() << c.why;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(c.message)) << c.why;
    }
  }
}

}  // namespace
}  // namespace permafrost::nn
