#include "nn/loss.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "nn/differences.h"
#include "nn/every_instruction_set.h"
#include "nn/leaf.h"

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

// Compares the fused losses with the same losses built from PyTorch's operators.

using at::Tensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct LossCase {
  const char* why;
  spec::Loss loss;
  int64_t rows, width;
  bool weighted = false;
  double missing = 0.2;  // share of labels that are missing
};

const LossCase kLossCases[] = {
    {"L1", spec::Loss::kL1, 33, 1},
    {"MSE of several targets", spec::Loss::kMse, 50, 3},
    {"MSE over several chunks", spec::Loss::kMse, 9000, 5},
    {"two classes", spec::Loss::kCrossEntropy, 33, 2},
    {"one class", spec::Loss::kCrossEntropy, 20, 1},
    {"more classes than a vector has lanes", spec::Loss::kCrossEntropy, 41, 47},
    {"weighted classes", spec::Loss::kCrossEntropy, 300, 10, true},
    {"several chunks of classes", spec::Loss::kCrossEntropy, 5000, 7, true},
    {"a row that is more than a chunk", spec::Loss::kCrossEntropy, 3, 5000},
    {"no label at all", spec::Loss::kCrossEntropy, 12, 4, true, 1},
    {"no rows", spec::Loss::kCrossEntropy, 0, 4},
    {"binary", spec::Loss::kBce, 40, 1},
    {"binary, several targets", spec::Loss::kBce, 31, 12},
    {"binary, weighted", spec::Loss::kBce, 31, 12, true},
    {"binary, several chunks", spec::Loss::kBce, 4000, 9, true},
    {"binary, no label at all", spec::Loss::kBce, 5, 3, false, 1},
};

struct LossInputs {
  Tensor prediction, labels, weights;
};

// Makes a loss's inputs. The last `padding` rows have no label and NaN predictions. The other rows do not depend on
// `padding`.
LossInputs MakeLoss(const LossCase& c, int64_t padding, at::ScalarType type) {
  at::manual_seed(c.rows * 100 + c.width);
  const auto floats = at::TensorOptions().dtype(type);
  const bool classes = c.loss == spec::Loss::kCrossEntropy;
  const int64_t targets = classes ? 1 : c.width, kinds = classes ? c.width : 2;
  const Tensor prediction = at::randn({c.rows, c.width}, floats) * 4;
  Tensor labels = at::randint(0, kinds, {c.rows, targets}, floats);
  if (c.loss == spec::Loss::kL1 || c.loss == spec::Loss::kMse) labels = at::randn({c.rows, targets}, floats);
  labels.masked_fill_(at::rand({c.rows, targets}).lt(c.missing), kNaN);
  LossInputs in;
  in.prediction = at::cat({prediction, at::full({padding, c.width}, kNaN, floats)});
  in.labels = at::cat({labels, at::full({padding, targets}, kNaN, floats)});
  if (c.weighted) in.weights = at::rand({kinds}, floats) + 0.1;
  return in;
}

// Returns mean, sum, count, and the gradient of 3 times the mean, without the padding rows.
std::vector<Tensor> RunLoss(const LossCase& c, const LossInputs& in, bool fused) {
  const Tensor prediction = Leaf(in.prediction);
  const LossTerms terms = fused ? MaskedLoss(c.loss, prediction, in.labels, in.weights)
                                : ComputeLossPlain(c.loss, prediction, in.labels, in.weights);
  (terms.mean * 3).backward();
  return {terms.mean.detach(), terms.sum, terms.count, prediction.grad().narrow(0, 0, c.rows)};
}

void ExpectLossesClose(const LossCase& c, at::ScalarType type, double tolerance, const std::string& why) {
  const LossInputs in = MakeLoss(c, 2, type);
  const auto fused = RunLoss(c, in, true), plain = RunLoss(c, in, false);
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_TRUE(at::allclose(fused[i], plain[i], tolerance, tolerance / 10)) << why << ": value " << i;
  }
}

TEST(MaskedLoss, AgreesWithPyTorchsOperators) {
  for (const LossCase& c : kLossCases) {
    ExpectLossesClose(c, at::kDouble, 1e-11, c.why);
    ExpectLossesClose(c, at::kFloat, 3e-5, std::string(c.why) + " in float32");
  }
}

TEST(MaskedLoss, EveryInstructionSetAgreesWithPyTorchsOperators) {
  ForEveryInstructionSet([](const std::string& instructions) {
    for (const LossCase& c : kLossCases) {
      const std::string why = c.why + (" with " + instructions);
      ExpectLossesClose(c, at::kDouble, 1e-11, why);
      ExpectLossesClose(c, at::kFloat, 3e-5, why + " in float32");
    }
  });
}

// Checks the gradient against finite differences along it, without a reference's derivative.
TEST(MaskedLoss, GradientsAreThoseOfDifferences) {
  for (const LossCase& c : kLossCases) {
    if (c.rows == 0 || c.missing == 1) continue;
    const LossInputs in = MakeLoss(c, 0, at::kDouble);
    const auto value = [&](const std::vector<Tensor>& at) {
      return MaskedLoss(c.loss, at[0], in.labels, in.weights).mean;
    };
    ExpectGradientsOfDifferences({in.prediction}, value, 1e-5, 1e-9, c.why);
  }
}

TEST(MaskedLoss, PaddingChangesNoBit) {
  for (const LossCase& c : kLossCases) {
    const auto few = RunLoss(c, MakeLoss(c, 1, at::kFloat), true);
    const auto many = RunLoss(c, MakeLoss(c, 3000, at::kFloat), true);
    for (size_t i = 0; i < few.size(); ++i) EXPECT_TRUE(at::equal(few[i], many[i])) << c.why << ": value " << i;
  }
}

TEST(MaskedLoss, TheNumberOfThreadsChangesNoBit) {
  const int threads = at::get_num_threads();
  for (const LossCase& c : kLossCases) {
    const LossInputs in = MakeLoss(c, 1, at::kFloat);
    at::set_num_threads(1);
    const auto one = RunLoss(c, in, true);
    at::set_num_threads(4);
    const auto four = RunLoss(c, in, true);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], four[i])) << c.why << ": value " << i;
  }
  at::set_num_threads(threads);
}

// For a million equal losses, a running float32 sum would be off by percents.
TEST(MaskedLoss, SumsOfManyLossesAreAccurate) {
  constexpr int64_t kRows = 1'000'000;
  const Tensor ones = at::ones({kRows, 1});
  const auto sum = [&](spec::Loss loss, const Tensor& prediction) {
    return MaskedLoss(loss, prediction, ones, {}).sum.item<double>() / kRows;
  };
  EXPECT_NEAR(sum(spec::Loss::kL1, ones * 1.1F), 0.1, 1e-7);
  EXPECT_NEAR(sum(spec::Loss::kBce, ones), std::log1p(std::exp(-1.0)), 1e-7);
  EXPECT_NEAR(sum(spec::Loss::kCrossEntropy, at::cat({ones, ones, ones}, 1)), std::log(3.0), 1e-7);
}

TEST(MaskedLoss, LargeLogitsNeitherOverflowNorVanish) {
  const Tensor logits = at::tensor({1000.0F, -1000.0F, -1000.0F, 1000.0F}).view({2, 2});
  const LossTerms classes = MaskedLoss(spec::Loss::kCrossEntropy, logits, at::tensor({0.0F, 0.0F}).view({2, 1}), {});
  EXPECT_EQ(classes.sum.item<float>(), 2000.0F);
  const LossTerms binary = MaskedLoss(spec::Loss::kBce, logits, at::tensor({1.0F, 1.0F, 0.0F, 1.0F}).view({2, 2}), {});
  EXPECT_EQ(binary.sum.item<float>(), 1000.0F);
}

// The loss of a diverged model must be NaN.
TEST(MaskedLoss, ANaNOfALabelledRowIsNotHidden) {
  for (const spec::Loss loss : {spec::Loss::kMse, spec::Loss::kCrossEntropy, spec::Loss::kBce}) {
    for (const int64_t width : {3, 40}) {
      const Tensor values = at::zeros({2, width});
      values[1][width - 1] = kNaN;
      const Tensor prediction = Leaf(values);
      const LossTerms terms =
          MaskedLoss(loss, prediction, at::zeros({2, loss == spec::Loss::kCrossEntropy ? 1 : width}), {});
      terms.mean.backward();
      EXPECT_TRUE(std::isnan(terms.sum.item<float>())) << spec::kLossNames.Name(loss) << " of " << width;
      EXPECT_TRUE(std::isnan(prediction.grad()[1][width - 1].item<float>()))
          << spec::kLossNames.Name(loss) << " of " << width;
      EXPECT_TRUE(prediction.grad()[0].isfinite().all().item<bool>()) << spec::kLossNames.Name(loss) << " of " << width;
    }
  }
}

TEST(MaskedLoss, WhatDoesNotFitIsNamed) {
  const Tensor two = at::zeros({2, 2}), column = at::zeros({2, 1});
  const struct {
    const char* message;
    spec::Loss loss;
    Tensor prediction, labels, weights;
  } kCases[] = {
      {"regression_loss: predictions [2, 2] and labels [2, 1]", spec::Loss::kL1, two, column, {}},
      {"must be [G, classes] and [G, 1]", spec::Loss::kCrossEntropy, two, two, {}},
      {"label 2 is none of the classes 0..1", spec::Loss::kCrossEntropy, two, column + 2, {}},
      {"label -1 is none of the classes 0..1", spec::Loss::kBce, two, two - 1, {}},
      {"cross_entropy_loss: 3 class weights for 2 classes", spec::Loss::kCrossEntropy, two, column, at::ones({3})},
      {"binary_cross_entropy_loss: 1 class weights for 2 classes", spec::Loss::kBce, two, two, at::ones({1})},
  };
  for (const auto& c : kCases) {
    try {
      MaskedLoss(c.loss, c.prediction, c.labels, c.weights);
      ADD_FAILURE() << c.message;
    } catch (const c10::Error& e) {
      EXPECT_NE(std::string(e.what_without_backtrace()).find(c.message), std::string::npos)
          << e.what_without_backtrace();
    }
  }
}

}  // namespace
}  // namespace permafrost::nn
