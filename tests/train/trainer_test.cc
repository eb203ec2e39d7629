#include "train/loop/trainer.h"

#include <gtest/gtest.h>

#include <limits>

namespace permafrost::train {
namespace {

TEST(IsBetter, NaNNeverReplacesANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const struct {
    const char* why;
    spec::Metric metric;
    double value, best;
    bool want;
  } kCases[] = {
      {"the first evaluation", spec::Metric::kMae, 0.5, nan, true},
      {"the first, of nothing", spec::Metric::kMae, nan, nan, true},
      {"a number after NaN", spec::Metric::kAccuracy, 0.1, nan, true},
      {"NaN after a number", spec::Metric::kMae, nan, 0.5, false},
      {"NaN after a number, higher is better", spec::Metric::kAccuracy, nan, 0.5, false},
      {"NaN after the worst number", spec::Metric::kMae, nan, infinity, false},
      {"an error that fell", spec::Metric::kMae, 0.4, 0.5, true},
      {"an error that rose", spec::Metric::kMae, 0.6, 0.5, false},
      {"an equal one: the earlier epoch stays", spec::Metric::kMae, 0.5, 0.5, false},
      {"an accuracy that rose", spec::Metric::kAccuracy, 0.6, 0.5, true},
      {"a ROC-AUC that fell", spec::Metric::kRocAuc, 0.4, 0.5, false},
  };
  for (const auto& c : kCases) EXPECT_EQ(IsBetter(c.metric, c.value, c.best), c.want) << c.why;
}

}  // namespace
}  // namespace permafrost::train
