#include "nn/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>

#include "nn/every_instruction_set.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

Tensor Step(int64_t step) { return at::full({1}, step, at::kLong); }
// Returns which values dropout keeps.
Tensor Mask(int64_t rows, int64_t columns, int64_t step, const DropoutKey& key, double p) {
  return Dropout(at::ones({rows, columns}), Step(step), key, p).ne(0);
}

TEST(Dropout, KeepsTheRightShareAndScalesIt) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor y = Dropout(at::full({1000, 100}, 2.0), Step(3), {.seed = 1, .layer = 0}, p);
    const double kept = y.ne(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1 - p, 5 * std::sqrt(p * (1 - p) / 1e5)) << p;
    const Tensor values = y.masked_select(y.ne(0));
    EXPECT_TRUE(values.allclose(at::full_like(values, 2 / (1 - p)))) << p;
  }
}

TEST(Dropout, EveryPartOfTheKeyChangesTheMask) {
  const Tensor base = Mask(200, 64, 5, {.seed = 7, .layer = 1}, 0.5);
  const struct {
    const char* why;
    Tensor mask;
  } kOthers[] = {
      {"seed", Mask(200, 64, 5, {.seed = 8, .layer = 1}, 0.5)},
      {"high half of the seed", Mask(200, 64, 5, {.seed = 7 | 1ULL << 40, .layer = 1}, 0.5)},
      {"step", Mask(200, 64, 6, {.seed = 7, .layer = 1}, 0.5)},
      {"high half of the step", Mask(200, 64, 5 + (1LL << 33), {.seed = 7, .layer = 1}, 0.5)},
      {"layer", Mask(200, 64, 5, {.seed = 7, .layer = 2}, 0.5)},
      {"row", Mask(201, 64, 5, {.seed = 7, .layer = 1}, 0.5).narrow(0, 1, 200)},
      {"column", Mask(200, 65, 5, {.seed = 7, .layer = 1}, 0.5).narrow(1, 1, 64)},
  };
  // Two independent masks with p = 0.5 agree in about half of the 12,800 places. Five standard deviations are 0.022.
  for (const auto& other : kOthers) {
    EXPECT_NEAR(base.eq(other.mask).to(at::kDouble).mean().item<double>(), 0.5, 0.022) << other.why;
  }
  EXPECT_TRUE(base.equal(Mask(200, 64, 5, {.seed = 7, .layer = 1}, 0.5)));
}

TEST(Dropout, RowsAddedByPaddingShiftNothing) {
  EXPECT_TRUE(Mask(50, 16, 9, {.seed = 1}, 0.3).equal(Mask(80, 16, 9, {.seed = 1}, 0.3).narrow(0, 0, 50)));
}

TEST(Dropout, KeysStandForRows) {
  const Tensor keys = at::tensor({7, 0, 3, 3, 49}, at::kLong);
  const Tensor keyed = Dropout(at::ones({5, 16}), Step(9), {.seed = 1}, 0.3, keys).ne(0);
  EXPECT_TRUE(keyed.equal(Mask(50, 16, 9, {.seed = 1}, 0.3).index_select(0, keys)));
}

TEST(Dropout, TheGradientTakesTheSameMask) {
  Tensor x = at::randn({40, 8}, at::kDouble).requires_grad_(true);
  const Tensor y = Dropout(x, Step(2), {.seed = 3, .layer = 4}, 0.4, at::randperm(40, at::kLong));
  const Tensor upstream = at::randn({40, 8}, at::kDouble);
  const Tensor gradient = torch::autograd::grad({y}, {x}, {upstream})[0];
  EXPECT_TRUE(gradient.allclose(upstream * y.ne(0) / 0.6));
  EXPECT_GT(y.eq(0).sum().item<int64_t>(), 0);
}

void ExpectCompositeMasks(const Tensor& x, const std::string& why) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::dropout", "");
  for (const int64_t step : {int64_t{0}, int64_t{12345}, (int64_t{1} << 35) + 3}) {
    for (const double p : {0.0, 0.25, 0.999}) {
      for (const c10::IValue& keys : {c10::IValue(), c10::IValue(at::randint(0, int64_t{1} << 40, {300}, at::kLong))}) {
        torch::jit::Stack stack{x, Step(step), keys, static_cast<int64_t>(-5), int64_t{2}, p};
        op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
        const Tensor composite = stack[0].toTensor();
        stack = {x, Step(step), keys, static_cast<int64_t>(-5), int64_t{2}, p};
        op.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
        EXPECT_TRUE(composite.eq(0).equal(stack[0].toTensor().eq(0))) << why << " " << step << " " << p;
        EXPECT_TRUE(composite.allclose(stack[0].toTensor())) << why << " " << step << " " << p;
      }
    }
  }
}

// Devices without a dropout kernel run the composite operator.
TEST(Dropout, TheCompositeDrawsTheSameMasksAsEveryInstructionSet) {
  ForEveryInstructionSet([](const std::string& instructions) {
    ExpectCompositeMasks(at::randn({300, 33}), instructions);
    ExpectCompositeMasks(at::randn({300, 33}, at::kDouble), instructions + " in float64");
  });
}

TEST(Dropout, WithoutIsTheIdentity) {
  const Tensor x = at::randn({3, 3});
  EXPECT_TRUE(Dropout(x, Tensor(), {}, 0).is_same(x));
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  const Tensor y = Uniform(at::empty({1000, 200}), Step(3), {.seed = 1, .layer = 2});
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_GE(y.min().item<float>(), 0);
  EXPECT_LT(y.max().item<float>(), 1);
  const Tensor counts = at::histc(y, 20, 0, 1);
  // The tolerance is five standard deviations of a count of 10,000.
  EXPECT_LT(counts.sub(10'000).abs().max().item<float>(), 500);
  EXPECT_FALSE(y.equal(Uniform(y, Step(4), {.seed = 1, .layer = 2})));
  EXPECT_TRUE(y.narrow(0, 0, 10).equal(Uniform(at::empty({10, 200}), Step(3), {.seed = 1, .layer = 2})));
}

TEST(Uniform, TheCompositeDrawsTheSame) {
  const auto composite = c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::uniform", "");
  torch::jit::Stack stack{at::empty({37, 11}), Step(1LL << 35 | 5), int64_t{9}, int64_t{3}};
  composite.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
  EXPECT_TRUE(stack[0].toTensor().equal(Uniform(at::empty({37, 11}), Step(1LL << 35 | 5), {.seed = 9, .layer = 3})));
}

}  // namespace
}  // namespace permafrost::nn
