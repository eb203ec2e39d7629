#include "nn/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace permafrost::nn {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

TEST(Loss, CountsPresentLabelsOnly) {
  const at::Tensor prediction = at::tensor({1.0F, 5.0F, -2.0F, 100.0F}).view({4, 1});
  const struct {
    const char* why;
    Loss loss;
    std::vector<float> labels;
    double mean, sum, count;
  } kCases[] = {
      {"L1, padding graph last", Loss::kL1, {2, 1, -2, kMissing}, 5.0 / 3, 5, 3},
      {"MSE, padding graph last", Loss::kMse, {2, 1, -2, kMissing}, 17.0 / 3, 17, 3},
      {"a missing label in the middle", Loss::kL1, {2, kMissing, -1, kMissing}, 1, 2, 2},
      {"no label at all", Loss::kMse, {kMissing, kMissing, kMissing, kMissing}, 0, 0, 0},
  };
  for (const auto& c : kCases) {
    const LossTerms terms = ComputeLoss(c.loss, prediction, at::tensor(c.labels).view({4, 1}));
    EXPECT_NEAR(terms.mean.item<double>(), c.mean, 1e-6) << c.why;
    EXPECT_NEAR(terms.sum.item<double>(), c.sum, 1e-5) << c.why;
    EXPECT_EQ(terms.count.item<double>(), c.count) << c.why;
  }
}

TEST(Loss, MissingLabelsAndWildPaddingHaveNoGradient) {
  for (const Loss loss : {Loss::kL1, Loss::kMse}) {
    const at::Tensor prediction = at::tensor({1.0F, 5.0F, kMissing}).view({3, 1}).set_requires_grad(true);
    ComputeLoss(loss, prediction, at::tensor({2.0F, kMissing, kMissing}).view({3, 1})).mean.backward();
    const at::Tensor grad = prediction.grad();
    EXPECT_EQ(grad[0].item<float>(), loss == Loss::kL1 ? -1.0F : -2.0F);
    EXPECT_EQ(grad[1].item<float>(), 0.0F);
    EXPECT_EQ(grad[2].item<float>(), 0.0F) << "a NaN prediction of a padding row";
  }
}

}  // namespace
}  // namespace permafrost::nn
