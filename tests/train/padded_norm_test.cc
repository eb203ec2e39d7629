#include "train/tasks/bound_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "collective/ranks.h"
#include "nn/ops/batch_norm.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using testing::ElementsAre;

constexpr int64_t kNormRows = 7, kNormChannels = 3;
constexpr double kNormMomentum = 0.3, kNormEps = 1e-5;

// The arguments of a batch norm, with distinct values.
struct Norm {
  Tensor x, weight, bias, mean = at::full({kNormChannels}, 0.5), var = at::full({kNormChannels}, 2.0);

  explicit Norm(int64_t rows) {
    x = at::arange(rows * kNormChannels, at::kFloat).mul(0.7).sin().view({rows, kNormChannels}).set_requires_grad(true);
    weight = at::linspace(0.5, 2, kNormChannels).set_requires_grad(true);
    bias = at::linspace(-1, 1, kNormChannels).set_requires_grad(true);
  }
  torch::jit::Stack Arguments(bool trains = true, bool running = true) const {
    return {x,        weight, bias, running ? mean : Tensor(), running ? var : Tensor(), trains, kNormMomentum,
            kNormEps, false};
  }
  Tensor Run(const Tensor& real, bool running = true) const {
    torch::jit::Stack stack = Arguments(/*trains=*/true, running);
    NormalizeReal(real, stack);
    EXPECT_EQ(stack.size(), 1);
    return stack.at(0).toTensor();
  }
};

Tensor Some(const std::vector<int64_t>& rows) {
  return at::zeros({kNormRows}, at::kBool).index_fill_(0, at::tensor(rows, at::kLong), true);
}

std::vector<Tensor> Gradients(const Tensor& y, const std::vector<Tensor>& of) {
  const Tensor weights = at::arange(y.numel(), at::kFloat).cos().view(y.sizes());
  return torch::autograd::grad({(y * weights).sum()}, of);
}

TEST(PaddedNorm, EqualsBatchNormOfTheRealRows) {
  for (const bool running : {true, false}) {
    const Norm padded(kNormRows), plain(kNormRows);
    const Tensor rows = at::tensor({0, 1, 4, 5}, at::kLong), real = Some({0, 1, 4, 5});
    const Tensor y = padded.Run(real, running);
    const Tensor wanted = at::batch_norm(plain.x.index_select(0, rows), plain.weight, plain.bias,
                                         running ? plain.mean : Tensor(), running ? plain.var : Tensor(),
                                         /*training=*/true, kNormMomentum, kNormEps, /*cudnn_enabled=*/false);
    EXPECT_TRUE(at::allclose(y.index_select(0, rows), wanted, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(padded.mean, plain.mean, 1e-6)) << padded.mean << plain.mean;
    EXPECT_TRUE(at::allclose(padded.var, plain.var, 1e-6)) << padded.var << plain.var;
    const auto made = Gradients(y.index_select(0, rows), {padded.x, padded.weight, padded.bias}),
               expected = Gradients(wanted, {plain.x, plain.weight, plain.bias});
    for (size_t i = 0; i < made.size(); ++i) EXPECT_TRUE(at::allclose(made[i], expected[i], 1e-4, 1e-5)) << i;
    EXPECT_EQ(made[0].index_select(0, at::tensor({2, 3, 6}, at::kLong)).abs().sum().item<float>(), 0);
  }
}

// Two ranks of one padded batch, of shape [rows, channels] or [rows, channels, 2]. They have three real rows and one.
TEST(PaddedNorm, IsOverTheRowsOfAllRanks) {
  for (const bool deep : {false, true}) {
    const std::vector<std::vector<int64_t>> real{{0, 2, 5}, {3}};
    const auto input = [&](const Tensor& x) { return deep ? at::stack({x, x.square()}, 2) : x; };
    const Norm whole(2 * kNormRows);
    const Tensor rows = at::tensor({0, 2, 5, 7 + 3}, at::kLong);
    const Tensor wanted =
        at::batch_norm(input(whole.x.index_select(0, rows)), whole.weight, whole.bias, whole.mean, whole.var,
                       /*training=*/true, kNormMomentum, kNormEps, /*cudnn_enabled=*/false);
    const auto expected = Gradients(wanted, {whole.x, whole.weight});
    std::vector<Tensor> made(2), x_gradients(2), weight_gradients(2);
    collective::RunRanks(2, [&](collective::Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const collective::Scope scope(&group);
      const Norm own(kNormRows);
      const Tensor x = whole.x.detach().narrow(0, group.rank() * kNormRows, kNormRows).clone().set_requires_grad(true);
      torch::jit::Stack stack = own.Arguments();
      stack[0] = input(x);
      NormalizeReal(Some(real[rank]), stack);
      made[rank] = stack.at(0).toTensor().index_select(0, at::tensor(real[rank], at::kLong));
      // The loss of this rank, which is its part of the whole loss.
      const Tensor weights = at::arange(wanted.numel(), at::kFloat).cos().view(wanted.sizes());
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      const auto gradients = torch::autograd::grad(
          {(made[rank] * weights.narrow(0, rank == 0 ? 0 : 3, rank == 0 ? 3 : 1)).sum()}, {x, own.weight});
      x_gradients[rank] = gradients[0];
      weight_gradients[rank] = gradients[1];
      EXPECT_TRUE(at::allclose(own.mean, whole.mean, 1e-6)) << own.mean << whole.mean;
      EXPECT_TRUE(at::allclose(own.var, whole.var, 1e-5)) << own.var << whole.var;
    });
    EXPECT_TRUE(at::allclose(at::cat(made), wanted, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(at::cat(x_gradients), expected[0], 1e-4, 1e-5)) << at::cat(x_gradients) << expected[0];
    EXPECT_TRUE(at::allclose(weight_gradients[0] + weight_gradients[1], expected[1], 1e-4, 1e-5));
  }
}

// A module that divides its loss by the number of labels gives NaN on a rank without labels. The NaN must not reach
// the other ranks.
TEST(PaddedNorm, ARankWithoutLabelsAddsNothingToTheGradientsOfOthers) {
  for (const bool is_operator : {false, true}) {
    std::vector<Tensor> gradients(2);
    collective::RunRanks(2, [&](collective::Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const collective::Scope scope(&group);
      Norm own(kNormRows);
      const Tensor y = is_operator ? nn::RowBatchNorm(own.x, own.weight, own.bias, own.mean, own.var,
                                                      {kNormMomentum, kNormEps}, false)
                                   : own.Run(at::ones({kNormRows}, at::kBool));
      const Tensor count = at::full({}, rank == 0 ? 2.0F : 0.0F);
      const collective::Part part(count);
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      const Tensor loss = (y * at::arange(y.numel(), at::kFloat).cos().view(y.sizes())).sum() * count / count;
      gradients[rank] = torch::autograd::grad({loss}, {own.x})[0];
    });
    EXPECT_TRUE(gradients[0].isfinite().all().item<bool>()) << gradients[0];
    EXPECT_GT(gradients[0].abs().max().item<float>(), 0);
  }
}

TEST(PaddedNorm, GivesPaddingTheBiasWhateverLiesThere) {
  const Norm norm(kNormRows);
  norm.x.detach().index_fill_(0, at::tensor({2}, at::kLong), 1e30);
  const Tensor y = norm.Run(Some({0, 1, 3}));
  EXPECT_TRUE(at::equal(y.select(0, 2), norm.bias));
  EXPECT_TRUE(y.isfinite().all().item<bool>());
}

TEST(PaddedNorm, FewerThanTwoRowsAreNormalizedByRunningStatistics) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{}, std::vector<int64_t>{3}}) {
    const Norm norm(kNormRows);
    const Tensor y = norm.Run(Some(rows));
    for (const int64_t row : rows) {
      const Tensor wanted =
          (norm.x.select(0, row) - norm.mean) / (norm.var + kNormEps).sqrt() * norm.weight + norm.bias;
      EXPECT_TRUE(at::allclose(y.select(0, row), wanted, 1e-5));
    }
    EXPECT_TRUE(at::equal(norm.mean, at::full({kNormChannels}, 0.5)));
    EXPECT_TRUE(at::equal(norm.var, at::full({kNormChannels}, 2.0)));
  }
}

TEST(PaddedNorm, KeepsTheTypeOfHalfPrecision) {
  Norm norm(kNormRows);
  norm.x = norm.x.detach().to(at::kBFloat16);
  EXPECT_EQ(norm.Run(Some({0, 1, 2})).scalar_type(), at::kBFloat16);
}

TEST(PaddedNorm, ReadsArgumentsWithoutTakingThem) {
  const Norm norm(kNormRows);
  for (const bool trains : {true, false}) {
    const torch::jit::Stack stack = norm.Arguments(trains);
    EXPECT_EQ(NormTrains(stack), trains);
    EXPECT_THAT(ShapeOfNorm(stack), ElementsAre(kNormRows, kNormChannels));
  }
}

}  // namespace
}  // namespace permafrost::train
