#include "train/loop/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace permafrost::train {
namespace {

// The expected learning rates are those of torch.optim.lr_scheduler.ReduceLROnPlateau in PyTorch 2.13, which start
// from 1.
TEST(Plateau, TheLearningRateIsPyTorchs) {
  const std::vector<double> errors{5, 4, 4.2, 3.9999, 4, 3.5, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6};
  const struct {
    const char* why;
    spec::Metric metric;
    spec::OptimizerOptions options;
    std::vector<double> values, want;
  } kCases[] = {
      {"lower is better",
       spec::Metric::kMae,
       {.decay_factor = 0.5, .plateau_patience = 1},
       errors,
       {1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625}},
      {"no patience, a least rate, a large threshold",
       spec::Metric::kMae,
       {.decay_factor = 0.1, .plateau_patience = 0, .plateau_threshold = 0.1, .min_learning_rate = 0.05},
       errors,
       {1, 1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05}},
      {"higher is better",
       spec::Metric::kAccuracy,
       {.decay_factor = 0.5, .plateau_patience = 2},
       {.1, .5, .5, .50001, .6, .55, .6, .6, .59, .7, .7, .7},
       {1, 1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5}},
  };
  for (const auto& c : kCases) {
    PlateauState state{.learning_rate = 1};
    for (size_t i = 0; i < c.values.size(); ++i) {
      const double before = state.learning_rate;
      EXPECT_EQ(TakeEpoch(c.options, c.metric, c.values[i], state), c.want[i] < before) << c.why << i;
      EXPECT_DOUBLE_EQ(state.learning_rate, c.want[i]) << c.why << ", epoch " << i;
    }
  }
}

TEST(Plateau, WhatSaysNothingChangesNothing) {
  PlateauState state{.learning_rate = 1, .best = 0.5, .bad_epochs = 3};
  const PlateauState before = state;
  EXPECT_FALSE(TakeEpoch({.plateau_patience = 0}, spec::Metric::kMae, std::numeric_limits<double>::quiet_NaN(), state));
  EXPECT_EQ(state, before);
}

}  // namespace
}  // namespace permafrost::train
