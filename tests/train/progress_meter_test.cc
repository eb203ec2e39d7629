#include "train/loop/trainer.h"

#include <gtest/gtest.h>

namespace permafrost::train {
namespace {

TEST(ProgressMeter, SaysNothingBeforeTheFirstStep) {
  const ProgressMeter meter;
  EXPECT_EQ(meter.graphs_per_second(), 0);
  EXPECT_EQ(meter.Eta(100), absl::ZeroDuration());
}

TEST(ProgressMeter, MeasuresASteadyPace) {
  ProgressMeter meter;
  for (int64_t step = 1; step <= 1000; ++step) meter.Add(absl::Milliseconds(10) * step, step, step * 32);
  EXPECT_NEAR(meter.graphs_per_second(), 3200, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(meter.Eta(500)), 5, 0.01);
}

TEST(ProgressMeter, ForgetsWhatIsOlderThanTheWindow) {
  ProgressMeter meter;
  absl::Duration now;
  int64_t step = 0;
  const auto go = [&](int64_t steps, absl::Duration pace) {
    for (int64_t i = 0; i < steps; ++i) {
      now += pace;
      ++step;
      meter.Add(now, step, step);
    }
  };
  go(100, absl::Milliseconds(100));  // 10 steps per second for 10 s
  go(2000, absl::Milliseconds(5));   // then 200 steps per second for 10 s
  EXPECT_NEAR(meter.graphs_per_second(), 200, 5);
}

}  // namespace
}  // namespace permafrost::train
