#include "device/cuda/graph_capturer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace permafrost::device {
namespace {

using at::Tensor;

// A weight that a step moves by up to 1e-2, a bias whose gradient is rounding alone, and a count of steps.
std::vector<StateTensor> State() {
  return {{"weight", at::zeros({3}), "parameter"},
          {"bias", at::zeros({2}), "parameter"},
          {"steps", at::zeros({}, at::kLong), "step"}};
}
HostValues Values(std::vector<float> weight, std::vector<float> bias, int64_t steps, float output = 4) {
  return {{at::tensor(weight), at::tensor(bias), at::full({}, steps, at::kLong)}, {at::full({1}, output)}};
}
const HostValues kStart = Values({1, 2, 3}, {0, 0}, 0);
const HostValues kRun = Values({1.01F, 1.99F, 3.005F}, {1e-9F, -2e-9F}, 1);
const HostValues kAgain = Values({1.01F, 1.99F, 3.0050002F}, {-1e-9F, -2e-9F}, 1);

std::optional<std::string> Difference(const HostValues& replay) {
  return FindDifference(State(), kStart, kRun, kAgain, replay);
}

TEST(ReplayProof, ARunThatDiffersByRoundingIsOne) {
  EXPECT_EQ(Difference(kRun), std::nullopt);
  EXPECT_EQ(Difference(kAgain), std::nullopt);
  EXPECT_EQ(Difference(Values({1.01F, 1.9900002F, 3.005F}, {3e-9F, 2e-9F}, 1)), std::nullopt);
  EXPECT_EQ(Difference(Values({1.01F, 1.99F, 3.005F}, {1e-9F, -2e-9F}, 1, 4.000001F)), std::nullopt);
}

TEST(ReplayProof, WhatAStepWouldNotLeaveIsNamed) {
  const struct {
    const char* why;
    HostValues replay;
    const char* want;
  } kCases[] = {
      {"a part of the gradient is missing", Values({1.0095F, 1.99F, 3.005F}, {1e-9F, -2e-9F}, 1), "weight"},
      {"the step was not done", kStart, "weight"},
      {"one element alone", Values({1.01F, 1.99F, 3.00505F}, {1e-9F, -2e-9F}, 1), "weight"},
      {"beyond rounding, where the gradient is rounding", Values({1.01F, 1.99F, 3.005F}, {1e-6F, 0}, 1), "bias"},
      {"another count", Values({1.01F, 1.99F, 3.005F}, {1e-9F, -2e-9F}, 2), "steps"},
      {"not a number", Values({std::numeric_limits<float>::quiet_NaN(), 1.99F, 3.005F}, {0, 0}, 1), "weight"},
      {"another output", Values({1.01F, 1.99F, 3.005F}, {1e-9F, -2e-9F}, 1, 4.01F), "output 0"},
  };
  for (const auto& c : kCases) EXPECT_EQ(Difference(c.replay), c.want) << c.why;
}

TEST(ReplayProof, AnInfiniteElementAllowsTheOthersNothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto difference = [&](const HostValues& replay) {
    const HostValues run = Values({inf, 1.99F, 3.005F}, {0, 0}, 1);
    return FindDifference(State(), kStart, run, run, replay);
  };
  EXPECT_EQ(difference(Values({inf, 1.99F, 3.005F}, {0, 0}, 1)), std::nullopt);
  EXPECT_EQ(difference(Values({inf, 2.5F, 3.005F}, {0, 0}, 1)), "weight");
  EXPECT_EQ(difference(Values({1.01F, 1.99F, 3.005F}, {0, 0}, 1)), "weight");
  EXPECT_EQ(difference(Values({-inf, 1.99F, 3.005F}, {0, 0}, 1)), "weight");
  EXPECT_EQ(difference(Values({inf, 1.99F, 3.005F}, {1, 0}, 1)), "bias");
}

TEST(ReplayProof, MissingLabelsAreEqual) {
  const HostValues nan = Values({1.01F, 1.99F, 3.005F}, {0, 0}, 1, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(FindDifference(State(), kStart, nan, nan, nan), std::nullopt);
  EXPECT_EQ(FindDifference(State(), kStart, nan, nan, kRun), "output 0");
}

}  // namespace
}  // namespace permafrost::device
