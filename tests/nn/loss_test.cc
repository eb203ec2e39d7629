#include "nn/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace permafrost::nn {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

TEST(Loss, CountsPresentLabelsOnly) {
  const at::Tensor prediction = at::tensor({1.0F, 5.0F, -2.0F, 100.0F}).view({4, 1});
  const struct {
    const char* why;
    spec::Loss loss;
    std::vector<float> labels;
    double mean, sum, count;
  } kCases[] = {
      {"L1, padding graph last", spec::Loss::kL1, {2, 1, -2, kMissing}, 5.0 / 3, 5, 3},
      {"MSE, padding graph last", spec::Loss::kMse, {2, 1, -2, kMissing}, 17.0 / 3, 17, 3},
      {"a missing label in the middle", spec::Loss::kL1, {2, kMissing, -1, kMissing}, 1, 2, 2},
      {"no label at all", spec::Loss::kMse, {kMissing, kMissing, kMissing, kMissing}, 0, 0, 0},
  };
  for (const auto& c : kCases) {
    const LossTerms terms = ComputeLoss(c.loss, prediction, at::tensor(c.labels).view({4, 1}));
    EXPECT_NEAR(terms.mean.item<double>(), c.mean, 1e-6) << c.why;
    EXPECT_NEAR(terms.sum.item<double>(), c.sum, 1e-5) << c.why;
    EXPECT_EQ(terms.count.item<double>(), c.count) << c.why;
  }
}

TEST(Loss, MissingLabelsAndWildPaddingHaveNoGradient) {
  for (const spec::Loss loss : {spec::Loss::kL1, spec::Loss::kMse}) {
    const at::Tensor prediction = at::tensor({1.0F, 5.0F, kMissing}).view({3, 1}).set_requires_grad(true);
    ComputeLoss(loss, prediction, at::tensor({2.0F, kMissing, kMissing}).view({3, 1})).mean.backward();
    const at::Tensor grad = prediction.grad();
    EXPECT_EQ(grad[0].item<float>(), loss == spec::Loss::kL1 ? -1.0F : -2.0F);
    EXPECT_EQ(grad[1].item<float>(), 0.0F);
    EXPECT_EQ(grad[2].item<float>(), 0.0F) << "a NaN prediction of a padding row";
  }
}

// -log softmax of (0, log 3) is (log 4, log 4 - log 3).
TEST(Loss, CrossEntropyByHand) {
  const double wrong = std::log(4.0), right = std::log(4.0 / 3);
  const at::Tensor logits = at::tensor({0.0F, std::log(3.0F), 0.0F, std::log(3.0F), 50.0F, -50.0F}).view({3, 2});
  const at::Tensor weights = at::tensor({0.25F, 0.5F});
  const struct {
    const char* why;
    std::vector<float> labels;
    at::Tensor weights;
    double sum, count;
  } kCases[] = {
      {"both classes", {0, 1, kMissing}, {}, wrong + right, 2},
      {"large logits", {1, 1, 0}, {}, 2 * right, 3},
      {"weighted, as torch.nn.CrossEntropyLoss(weight)", {0, 1, kMissing}, weights, wrong / 4 + right / 2, 0.75},
      {"a sum of weights below 1 divides too", {kMissing, 0, kMissing}, weights, wrong / 4, 0.25},
      {"no label at all", {kMissing, kMissing, kMissing}, weights, 0, 0},
  };
  for (const auto& c : kCases) {
    const LossTerms terms =
        ComputeLoss(spec::Loss::kCrossEntropy, logits, at::tensor(c.labels).view({3, 1}), c.weights);
    EXPECT_NEAR(terms.sum.item<double>(), c.sum, 1e-5) << c.why;
    EXPECT_NEAR(terms.count.item<double>(), c.count, 1e-6) << c.why;
    EXPECT_NEAR(terms.mean.item<double>(), c.count == 0 ? 0 : c.sum / c.count, 1e-5) << c.why;
  }
}

// The probability of logit log 3 is 3/4.
TEST(Loss, BinaryCrossEntropyByHand) {
  const double wrong = std::log(4.0), right = std::log(4.0 / 3);
  const at::Tensor logits = at::full({2, 2}, std::log(3.0F));
  const struct {
    const char* why;
    std::vector<float> labels;
    at::Tensor weights;
    double sum, count;
  } kCases[] = {
      {"each target by itself", {0, 1, 1, 1}, {}, wrong + 3 * right, 4},
      {"a missing target", {0, kMissing, 1, 1}, {}, wrong + 2 * right, 3},
      {"weighted by its label", {0, kMissing, 1, 1}, at::tensor({2.0F, 0.5F}), 2 * wrong + right, 3},
      {"no label at all", {kMissing, kMissing, kMissing, kMissing}, {}, 0, 0},
  };
  for (const auto& c : kCases) {
    const LossTerms terms = ComputeLoss(spec::Loss::kBce, logits, at::tensor(c.labels).view({2, 2}), c.weights);
    EXPECT_NEAR(terms.sum.item<double>(), c.sum, 1e-5) << c.why;
    EXPECT_NEAR(terms.count.item<double>(), c.count, 1e-6) << c.why;
    EXPECT_NEAR(terms.mean.item<double>(), c.count == 0 ? 0 : c.sum / c.count, 1e-5) << c.why;
  }
}

TEST(Loss, NeitherMissingLabelsNorWildPaddingReachTheGradientsOfClasses) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const spec::Loss loss : {spec::Loss::kCrossEntropy, spec::Loss::kBce}) {
    const int64_t targets = loss == spec::Loss::kBce ? 2 : 1;
    const auto gradient = [&](const std::vector<float>& logits, const std::vector<float>& rows) {
      std::vector<float> labels;
      for (const float row : rows) labels.insert(labels.end(), static_cast<size_t>(targets), row);
      const auto count = static_cast<int64_t>(rows.size());
      const at::Tensor prediction = at::tensor(logits).view({count, 2}).set_requires_grad(true);
      ComputeLoss(loss, prediction, at::tensor(labels).view({count, targets}), at::tensor({0.5F, 0.25F}))
          .mean.backward();
      return prediction.grad();
    };
    const at::Tensor alone = gradient({1, 5}, {1});
    const at::Tensor padded = gradient({1, 5, 7, 7, kMissing, infinity}, {1, kMissing, kMissing});
    EXPECT_TRUE(padded.narrow(0, 0, 1).equal(alone)) << spec::kLossNames.Name(loss);
    EXPECT_GT(alone.abs().sum().item<float>(), 0) << spec::kLossNames.Name(loss);
    EXPECT_TRUE(padded.narrow(0, 1, 2).eq(0).all().item<bool>()) << spec::kLossNames.Name(loss) << padded;
    EXPECT_TRUE(gradient({1, 5, kMissing, 2}, {kMissing, kMissing}).eq(0).all().item<bool>())
        << spec::kLossNames.Name(loss) << ": no label at all";
  }
}

TEST(Loss, OthersHaveNoClassWeights) {
  EXPECT_THROW(ComputeLoss(spec::Loss::kL1, at::zeros({1, 1}), at::zeros({1, 1}), at::ones({2})), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
