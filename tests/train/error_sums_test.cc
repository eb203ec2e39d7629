#include "train/loop/step_engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace permafrost::train {
namespace {

nn::LossTerms Terms(float sum, float count) {
  return {.mean = {}, .sum = at::full({}, sum), .count = at::full({}, count)};
}

// Some devices lack float64. A sum in a single float32 stops growing at 2^24.
TEST(ErrorSumsTest, PairsOfFloat32SumAsFloat64Does) {
  ErrorSums pairs(at::kCPU, /*pairs=*/true), doubles(at::kCPU, /*pairs=*/false);
  EXPECT_EQ(pairs.tensors().size(), 4u);
  EXPECT_EQ(pairs.tensors()[0].value.scalar_type(), at::kFloat);
  for (ErrorSums* sums : {&pairs, &doubles}) {
    sums->Add(Terms(1e8F, 16'777'216));
    for (int i = 0; i < 1000; ++i) sums->Add(Terms(0.3F + 1e-3F * static_cast<float>(i), 1));
  }
  EXPECT_EQ(pairs.Count(), 16'778'216);
  EXPECT_EQ(doubles.Count(), 16'778'216);
  EXPECT_NEAR(pairs.Mean() / doubles.Mean(), 1, 1e-12);
  EXPECT_NE(pairs.tensors()[0].value.item<float>(), doubles.tensors()[0].value.item<double>())
      << "the first alone is not";
}

TEST(ErrorSumsTest, BothBeginAnewAndOfNothingThereIsNoMean) {
  for (const bool pairs : {false, true}) {
    ErrorSums sums(at::kCPU, pairs);
    EXPECT_TRUE(std::isnan(sums.Mean()));
    sums.Add(Terms(6, 4));
    EXPECT_EQ(sums.Mean(), 1.5);
    sums.Reset();
    EXPECT_TRUE(std::isnan(sums.Mean()));
    EXPECT_EQ(sums.Count(), 0);
  }
}

}  // namespace
}  // namespace permafrost::train
