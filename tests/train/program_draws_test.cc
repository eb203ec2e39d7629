// Tests operators of programs that draw numbers: they have PyTorch's distributions, and give the same numbers for the
// same key.
#include "train/tasks/bound_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace permafrost::train {
namespace {

using at::Tensor;
using torch::jit::Stack;

program::Node NodeOf(const std::string& target) {
  program::Node node;
  node.target = "torch.ops.aten." + target;
  return node;
}

Stack Drawn(const std::string& target, Stack stack, int64_t step = 3, int64_t place = 1, uint64_t seed = 7) {
  Draw(NodeOf(target), seed, place, at::full({1}, step, at::kLong), stack);
  return stack;
}

const c10::IValue kNone;
constexpr int64_t kRows = 400, kColumns = 100;

struct Case {
  std::string target;
  std::function<Stack()> arguments;
  double mean = 0, deviation = 1;
};

std::vector<Case> Cases() {
  const auto zeros = [](at::ScalarType type = at::kFloat) { return at::zeros({kRows, kColumns}, type); };
  const c10::List<int64_t> sizes({kRows, kColumns});
  const double third = std::sqrt(1.0 / 12);
  return {
      {"dropout.default",
       [=] {
         return Stack{zeros() + 1, 0.25, true};
       },
       1, std::sqrt(1 / 0.75 - 1)},
      {"dropout.default",
       [=] {
         return Stack{at::ones({kRows * kColumns}), 0.25, true};
       },
       1, std::sqrt(1 / 0.75 - 1)},
      {"dropout_.default",
       [=] {
         return Stack{zeros() + 1, 0.25, true};
       },
       1, std::sqrt(1 / 0.75 - 1)},
      {"native_dropout.default",
       [=] {
         return Stack{zeros() + 1, 0.25, true};
       },
       1, std::sqrt(1 / 0.75 - 1)},
      {"feature_dropout.default",
       [=] {
         return Stack{at::ones({kRows, kColumns, 3}), 0.25, true};
       },
       1, std::sqrt(1 / 0.75 - 1)},
      {"rand_like.default", [=] { return Stack{zeros(), kNone, kNone, kNone, kNone, kNone}; }, 0.5, third},
      {"randn_like.default", [=] { return Stack{zeros(at::kDouble), kNone, kNone, kNone, kNone, kNone}; }, 0, 1},
      {"rand.default",
       [=] {
         return Stack{sizes, kNone, kNone, kNone, kNone};
       },
       0.5, third},
      {"randn.default",
       [=] {
         return Stack{sizes, kNone, kNone, kNone, kNone};
       },
       0, 1},
      {"bernoulli.default",
       [=] {
         return Stack{zeros() + 0.3, kNone};
       },
       0.3, std::sqrt(0.21)},
      {"bernoulli.p",
       [=] {
         return Stack{zeros(), 0.3, kNone};
       },
       0.3, std::sqrt(0.21)},
      {"bernoulli_.float",
       [=] {
         return Stack{zeros(at::kBool), 0.3, kNone};
       },
       0.3, std::sqrt(0.21)},
      {"bernoulli_.Tensor",
       [=] {
         return Stack{zeros(at::kLong), zeros() + 0.3, kNone};
       },
       0.3, std::sqrt(0.21)},
      {"bernoulli_.Tensor",
       [=] {
         return Stack{zeros(), at::scalar_tensor(0.3), kNone};
       },
       0.3, std::sqrt(0.21)},
      {"rand_like.default", [=] { return Stack{zeros(at::kBFloat16), kNone, kNone, kNone, kNone, kNone}; },
       0.5 - 1.0 / 512, third},
      {"exponential_.default",
       [=] {
         return Stack{zeros(at::kBFloat16), 0.5, kNone};
       },
       2, 2},
      {"randn_like.default", [=] { return Stack{zeros(at::kHalf), kNone, kNone, kNone, kNone, kNone}; }, 0, 1},
      {"exponential_.default",
       [=] {
         return Stack{zeros(at::kHalf), 0.5, kNone};
       },
       2, 2},
      {"uniform_.default",
       [=] {
         return Stack{zeros(), -2.0, 4.0, kNone};
       },
       1, 6 * third},
      {"normal_.default",
       [=] {
         return Stack{zeros(), 5.0, 2.0, kNone};
       },
       5, 2},
      {"exponential_.default",
       [=] {
         return Stack{zeros(), 0.5, kNone};
       },
       2, 2},
      {"randint.default", [=] { return Stack{int64_t{5}, sizes, kNone, kNone, kNone, kNone}; }, 2, std::sqrt(2.0)},
      {"randint.low", [=] { return Stack{int64_t{10}, int64_t{15}, sizes, kNone, kNone, kNone, kNone}; }, 12,
       std::sqrt(2.0)},
  };
}

TEST(ProgramDraws, HaveTheDistributionsOfPyTorch) {
  for (const Case& c : Cases()) {
    ASSERT_TRUE(CanDraw(NodeOf(c.target))) << c.target;
    const Tensor drawn = Drawn(c.target, c.arguments())[0].toTensor().to(at::kDouble);
    // The tolerance is five standard errors. A feature that is dropped as a whole counts as one draw.
    const double error = 5 / std::sqrt(static_cast<double>(kRows * kColumns));
    EXPECT_NEAR(drawn.mean().item<double>(), c.mean, error * c.deviation) << c.target;
    EXPECT_NEAR(drawn.std().item<double>(), c.deviation, 3 * error * c.deviation) << c.target;
    EXPECT_TRUE(drawn.isfinite().all().item<bool>()) << c.target;
  }
}

TEST(ProgramDraws, DependOnTheKeyAlone) {
  for (const Case& c : Cases()) {
    const auto draw = [&](int64_t step, int64_t place, uint64_t seed) {
      return Drawn(c.target, c.arguments(), step, place, seed)[0].toTensor();
    };
    const Tensor first = draw(3, 1, 7);
    EXPECT_TRUE(first.equal(draw(3, 1, 7))) << c.target;
    EXPECT_FALSE(first.equal(draw(4, 1, 7))) << c.target;
    EXPECT_FALSE(first.equal(draw(3, 2, 7))) << c.target;
    EXPECT_FALSE(first.equal(draw(3, 1, 8))) << c.target;
  }
}

TEST(ProgramDraws, ThoseInPlaceWriteToTheirTensor) {
  for (const Case& c : Cases()) {
    if (c.target.find("_.") == std::string::npos) continue;
    Stack arguments = c.arguments();
    const Tensor x = arguments[0].toTensor();
    EXPECT_TRUE(Drawn(c.target, arguments)[0].toTensor().is_same(x)) << c.target;
  }
}

TEST(ProgramDraws, NumbersOfOneNodeAreIndependent) {
  const Tensor drawn =
      Drawn("randn.default", {c10::List<int64_t>({20'000, 2}), kNone, kNone, kNone, kNone})[0].toTensor();
  const double correlation = at::corrcoef(drawn.t()).index({0, 1}).item<double>();
  EXPECT_NEAR(correlation, 0, 5 / std::sqrt(20'000.0));
  // A fifth of a normal distribution lies below -0.8416.
  EXPECT_NEAR(drawn.lt(-0.8416).to(at::kDouble).mean().item<double>(), 0.2, 0.012);
}

TEST(ProgramDraws, UniformNumbersOfFewBitsStayBelowOne) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor drawn =
        Drawn("rand_like.default", {at::zeros({2000, 500}, type), kNone, kNone, kNone, kNone, kNone})[0].toTensor();
    EXPECT_LT(drawn.max().item<float>(), 1) << type;
    EXPECT_EQ(drawn.scalar_type(), type);
  }
}

TEST(ProgramDraws, AnIntervalDoesNotHoldItsEnd) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor drawn = Drawn("uniform_.default", {at::zeros({2000, 500}, type), 1.0, 2.0, kNone})[0].toTensor();
    EXPECT_LT(drawn.max().item<float>(), 2) << type;
    EXPECT_GE(drawn.min().item<float>(), 1) << type;
  }
}

TEST(ProgramDraws, IntegersFillAnyRangeOfUpTo48Bits) {
  const auto draw = [](int64_t low, int64_t high) {
    return Drawn("randint.low", {low, high, c10::List<int64_t>({20'000}), kNone, kNone, kNone, kNone})[0].toTensor();
  };
  const int64_t low = (int64_t{1} << 40) + 1;
  const Tensor wide = draw(low, low + (int64_t{1} << 40));
  EXPECT_GE(wide.min().item<int64_t>(), low);
  EXPECT_LT(wide.max().item<int64_t>(), low + (int64_t{1} << 40));
  EXPECT_NEAR(wide.remainder(2).to(at::kDouble).mean().item<double>(), 0.5, 0.02);
  EXPECT_THROW(draw(0, 0), c10::Error);
  EXPECT_THROW(draw(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()), c10::Error);
}

TEST(ProgramDraws, TakeAnyRankAndType) {
  EXPECT_EQ(Drawn("rand_like.default", {at::zeros({}), kNone, kNone, kNone, kNone, kNone})[0].toTensor().dim(), 0);
  EXPECT_EQ(Drawn("rand_like.default", {at::zeros({0, 4}), kNone, kNone, kNone, kNone, kNone})[0].toTensor().numel(),
            0);
  const Tensor typed =
      Drawn("rand_like.default", {at::zeros({3}, at::kLong), at::kDouble, kNone, kNone, kNone, kNone})[0].toTensor();
  EXPECT_EQ(typed.scalar_type(), at::kDouble);
  EXPECT_EQ(Drawn("dropout.default", {at::ones({4, 2}), 1.0, true})[0].toTensor().sum().item<float>(), 0);
  EXPECT_FALSE(CanDraw(NodeOf("multinomial.default")));
}

}  // namespace
}  // namespace permafrost::train
