#include "nn/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace permafrost::nn {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void ExpectEqual(double got, double want, const char* why) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << why << ": " << got;
  } else {
    EXPECT_NEAR(got, want, 1e-12) << why;
  }
}

// By numpy, for one target: p, n = s[y == 1][:, None], s[y == 0]; ((p > n) + 0.5 * (p == n)).mean()
TEST(Metrics, RocAuc) {
  const struct {
    const char* why;
    std::vector<float> scores, labels;
    int64_t targets;
    double want;
  } kCases[] = {
      {"as in scikit-learn's documentation", {0.1F, 0.4F, 0.35F, 0.8F}, {0, 0, 1, 1}, 1, 0.75},
      {"perfect", {-3, -1, 2, 9}, {0, 0, 1, 1}, 1, 1},
      {"upside down", {9, 2, -1, -3}, {0, 0, 1, 1}, 1, 0},
      {"all tied", {1, 1, 1, 1, 1}, {0, 1, 0, 1, 1}, 1, 0.5},
      // Pairs: 2 against 1 and 2, 3 against 1 and 2: (1 + 0.5 + 1 + 1) / 4.
      {"one tie across the kinds", {1, 2, 2, 3}, {0, 0, 1, 1}, 1, 0.875},
      {"ties in any order of rows", {3, 2, 1, 2}, {1, 1, 0, 0}, 1, 0.875},
      {"missing labels take no part", {0.1F, 9, 0.4F, 0.35F, 0.8F}, {0, kNoLabel, 0, 1, 1}, 1, 0.75},
      {"the score of a missing label may be NaN", {1, kNoLabel, 2}, {0, kNoLabel, 1}, 1, 1},
      {"a NaN score", {1, kNoLabel, 2}, {0, 1, 1}, 1, kNone},
      {"one kind only", {1, 2}, {1, 1}, 1, kNone},
      {"no rows", {}, {}, 1, kNone},
      {"mean of two targets", {1, 9, 2, 1}, {0, 0, 1, 1}, 2, 0.5},
      {"a target of one kind takes no part", {1, 9, 2, 1}, {0, 1, 1, 1}, 2, 1},
  };
  for (const auto& c : kCases) ExpectEqual(RocAuc(c.scores, c.labels, c.targets), c.want, c.why);
}

// By numpy: (outputs.argmax(1) == labels).mean()
TEST(Metrics, Accuracy) {
  const struct {
    const char* why;
    std::vector<float> outputs, labels;
    int64_t classes;
    double want;
  } kCases[] = {
      {"two of three", {1, 2, 3, 3, 2, 1, 0, 5, 0}, {2, 0, 0}, 3, 2.0 / 3},
      {"missing labels take no part", {1, 2, 2, 1}, {kNoLabel, 0}, 2, 1},
      {"of equal outputs the first is the answer", {4, 4, 4, 4}, {0, 1}, 2, 0.5},
      {"a NaN output is wrong", {kNoLabel, 1, 1, kNoLabel}, {0, 0}, 2, 0},
      {"a label that is no class is wrong", {1, 2, 1, 2}, {2, -1}, 2, 0},
      {"no labels", {1, 2}, {kNoLabel}, 2, kNone},
  };
  for (const auto& c : kCases) ExpectEqual(Accuracy(c.outputs, c.labels, c.classes), c.want, c.why);
}

}  // namespace
}  // namespace permafrost::nn
