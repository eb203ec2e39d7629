#include "nn/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
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

// The formula in numpy, for one target: p, n = s[y == 1][:, None], s[y == 0]; ((p > n) + 0.5 * (p == n)).mean()
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
      // The pairs are 2 against 1 and 2, and 3 against 1 and 2: (1 + 0.5 + 1 + 1) / 4.
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

// The formula in numpy: (outputs.argmax(1) == labels).mean()
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

// The expected values are frozen from scikit-learn 1.x: accuracy_score, f1_score(zero_division=0),
// roc_auc_score(multi_class="ovr") of softmax, average_precision_score, mean_absolute_error, root of
// mean_squared_error, r2_score.
TEST(Metrics, AreThoseOfScikitLearn) {
  const struct {
    const char* why;
    spec::Loss loss;
    int64_t width;
    std::vector<float> outputs, labels;
    std::map<spec::Metric, double> want;
  } kCases[] = {
      {"three classes",
       spec::Loss::kCrossEntropy,
       3,
       {1.8F, 0.4F,  0.1F, -1.9F, -0.3F, -0.4F, -0.1F, -0.6F, 0,     -0.5F, -1.3F, 0.9F,
        0.9F, 1.7F,  0.1F, -0.4F, -0.5F, -1.5F, 1,     -1.1F, -1.2F, -0.2F, 1.5F,  0.2F,
        -1,   -0.7F, 0.6F, -0.2F, -0.8F, -0.2F, 0.7F,  2,     -1.2F, -0.6F, -0.8F, -2.4F},
       {0, 0, 0, 0, 0, 0, 2, 2, 0, 1, 1, 2},
       {{spec::Metric::kAccuracy, 0.25},
        {spec::Metric::kF1Macro, 0.2222222222222222},
        {spec::Metric::kF1Micro, 0.25},
        {spec::Metric::kRocAuc, 0.4312169312169312},
        {spec::Metric::kAveragePrecision, 0.4608207929636501}}},
      {"two classes",
       spec::Loss::kCrossEntropy,
       2,
       {0.1F,  -1.4F, 0,     -0.9F, 1.4F,  -0.9F, 0.8F, 1.1F, -1,   1.5F,
        -1.2F, 1.3F,  -1.8F, 0.8F,  -0.7F, -0.1F, 0.7F, -1,   1.3F, 0.9F},
       {0, 1, 1, 0, 0, 0, 1, 0, 1, 1},
       {{spec::Metric::kAccuracy, 0.2},
        {spec::Metric::kF1Macro, 0.2},
        {spec::Metric::kF1Micro, 0.2},
        {spec::Metric::kRocAuc, 0.28},
        {spec::Metric::kAveragePrecision, 0.5412698412698412}}},
      {"two targets by bce",
       spec::Loss::kBce,
       2,
       {0.2F, -1.1F, 0.4F, 1.9F, -1, 0.9F, -0.2F, 1.8F, 0.5F, 0.7F, 0.6F, 0.2F, -1.4F, 1.4F, -1.4F, 0.2F, 0.6F, -0.8F},
       {1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0},
       {{spec::Metric::kAccuracy, 0.4444444444444444},
        {spec::Metric::kF1Macro, 0.375},
        {spec::Metric::kF1Micro, 0.375},
        {spec::Metric::kRocAuc, 0.8194444444444444},
        {spec::Metric::kAveragePrecision, 0.7333333333333334}}},
      {"classes that are no answer or no label",
       spec::Loss::kCrossEntropy,
       4,
       {-1.5F, -0.2F, 0.3F, -9, -0.3F, -1.1F, 0.8F, -9, -1.8F, -0.2F, 0.4F, -9, -0.7F, -0.1F, 0,     -9,
        -0.3F, 0.3F,  0.9F, -9, -0.3F, 0.7F,  1,    -9, 0.5F,  -0.8F, 0.5F, -9, 1.3F,  -0.8F, -0.4F, -9},
       {1, 0, 1, 1, 1, 1, 0, 0},
       {{spec::Metric::kF1Macro, 0.26666666666666666}, {spec::Metric::kF1Micro, 0.25}}},
      {"two targets",
       spec::Loss::kL1,
       2,
       {0.36F, -0.38F, -0.63F, -0.32F, 1, -1, 0.78F, -1.04F, 1.17F, -0.54F, 0.72F, 1.54F, -0.32F, -1.52F},
       {0.96F, -0.07F, -0.88F, 0.31F, 0.55F, -1.1F, 1.35F, -1.14F, 0.64F, -0.67F, 1.32F, 1.23F, -0.93F, -2.87F},
       {{spec::Metric::kMae, 0.46714285016059875},
        {spec::Metric::kRmse, 0.5613376475928749},
        {spec::Metric::kR2, 0.7024084329605103}}},
  };
  for (const auto& c : kCases) {
    for (const auto& [metric, want] : c.want) {
      // Labels and outputs are float32 here, but the expected values were computed from their decimals.
      EXPECT_NEAR(ComputeMetric(metric, c.loss, c.outputs, c.labels, c.width), want, 1e-6)
          << c.why << " " << spec::kMetricNames.Name(metric);
    }
  }
}

TEST(Metrics, WhatIsMissingTakesNoPart) {
  const std::vector<float> outputs = {2, 0, kNoLabel, kNoLabel, 0, 2, 2, 0}, labels = {0, kNoLabel, 1, 1};
  for (const spec::Metric metric : {spec::Metric::kAccuracy, spec::Metric::kF1Micro}) {
    EXPECT_NEAR(ComputeMetric(metric, spec::Loss::kCrossEntropy, outputs, labels, 2), 2.0 / 3, 1e-12);
  }
  // A row with a NaN output has no prediction. It counts as a miss of its own class, and as a false hit of no class.
  EXPECT_NEAR(ComputeMetric(spec::Metric::kF1Macro, spec::Loss::kCrossEntropy, outputs,
                            std::vector<float>{0, 0, 1, kNoLabel}, 2),
              (2.0 / 3 + 1) / 2, 1e-12);
  for (const auto& [metric, name] : spec::kMetricNames.rows) {
    const spec::Loss loss = Measures(metric, spec::Loss::kL1) ? spec::Loss::kL1 : spec::Loss::kCrossEntropy;
    const std::vector<float> none(4, kNoLabel);
    EXPECT_TRUE(std::isnan(ComputeMetric(metric, loss, outputs, none, loss == spec::Loss::kL1 ? 1 : 2))) << name;
  }
  // R2 is NaN for a single label, which has no variance. A target that does not vary has R2 1 if the prediction is
  // right, and 0 if it is wrong.
  EXPECT_TRUE(std::isnan(ComputeMetric(spec::Metric::kR2, spec::Loss::kMse, std::vector<float>{1, 2},
                                       std::vector<float>{1, kNoLabel}, 1)));
  EXPECT_EQ(ComputeMetric(spec::Metric::kR2, spec::Loss::kMse, std::vector<float>{3, 3}, std::vector<float>{3, 3}, 1),
            1);
  EXPECT_EQ(ComputeMetric(spec::Metric::kR2, spec::Loss::kMse, std::vector<float>{3, 4}, std::vector<float>{3, 3}, 1),
            0);
  // If there are no positive labels and no positive predictions, F1 of the target is 0, as with scikit-learn's
  // zero_division=0.
  EXPECT_EQ(
      ComputeMetric(spec::Metric::kF1Macro, spec::Loss::kBce, std::vector<float>{-1, -1}, std::vector<float>{0, 0}, 1),
      0);
}

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Four links with three negatives each. Their ranks are 1, 2.5 (one above, one equal), 4 and 2.5 (all equal).
const std::vector<float> kLinks{5, 2, -1, 7};
const std::vector<float> kNegatives{4, 3, -9, 3, 2, 0, 0, 1, 2, 7, 7, 7};

double Of(spec::Metric metric, const std::vector<float>& links = kLinks,
          const std::vector<float>& negatives = kNegatives) {
  return ComputeLinkMetric(metric, {.links = links, .negatives = negatives});
}

TEST(LinkMetrics, RanksCountEqualScoresHalf) {
  EXPECT_THAT(RanksOf({.links = kLinks, .negatives = kNegatives}), ElementsAre(1, 2.5, 4, 2.5));
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kMrr), (1 + 0.4 + 0.25 + 0.4) / 4);
}

// The negatives in falling order are 7, 7, 7, 4, 3, 3, 2, 2, 1, 0, 0, -9.
TEST(LinkMetrics, HitsAreAboveTheKthOfAllNegatives) {
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kHitsAt10), 0.75) << "5, 2 and 7 are above 0";
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kHitsAt20), 1) << "there are fewer than 20";
  std::vector<float> links, negatives;
  for (int i = 0; i < 100; ++i) {
    links.push_back(static_cast<float>(i));
    negatives.push_back(static_cast<float>(i) + 0.5F);
  }
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kHitsAt20, links, negatives), 0.19) << "81 ... 99 are above 80.5";
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kHitsAt50, links, negatives), 0.49);
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kHitsAt100, links, negatives), 0.99)
      << "an equal score is no hit, and 0 is below 0.5";
}

TEST(LinkMetrics, AreasAreOfLinksAgainstAllNegatives) {
  // Counts the pairs in which a link scores above a negative. Ties count half.
  double above = 0;
  for (const float link : kLinks)
    for (const float negative : kNegatives) above += link > negative ? 1 : link == negative ? 0.5 : 0;
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kRocAuc), above / static_cast<double>(kLinks.size() * kNegatives.size()));
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kAveragePrecision, {3, 1}, {2, 0}), (1 + 2.0 / 3) / 2);
}

// All links share the negatives 7, 3, 3, 0 and -9.
TEST(LinkMetrics, LinksRankAmongNegativesThatAllShare) {
  const std::vector<float> links{5, 3, -10, 7}, negatives{3, -9, 7, 0, 3};
  const LinkScores scores{.links = links, .negatives = negatives, .share = true};
  EXPECT_THAT(RanksOf(scores), ElementsAre(2, 3, 6, 1.5));
  EXPECT_DOUBLE_EQ(ComputeLinkMetric(spec::Metric::kMrr, scores), (0.5 + 1.0 / 3 + 1.0 / 6 + 1 / 1.5) / 4);
  EXPECT_DOUBLE_EQ(ComputeLinkMetric(spec::Metric::kHitsAt10, scores), 1) << "there are fewer than 10";
  EXPECT_DOUBLE_EQ(ComputeLinkMetric(spec::Metric::kRocAuc, scores), (4 + 3 + 0 + 4.5) / 20);
  EXPECT_TRUE(std::isnan(RanksOf({.links = links, .negatives = std::vector<float>{kNan}, .share = true})[0]));
}

TEST(LinkMetrics, NothingIsSaidOfNothingOrNan) {
  for (const auto& [metric, name] : spec::kMetricNames.rows) {
    if (!spec::TraitsOf(metric).of_links) continue;
    EXPECT_TRUE(std::isnan(Of(metric, {}, {}))) << name;
    EXPECT_TRUE(std::isnan(Of(metric, {1, kNan}, {0, 0}))) << name;
    EXPECT_TRUE(std::isnan(Of(metric, {1, 2}, {0, kNan}))) << name;
  }
  const std::vector<float> ranks =
      RanksOf({.links = std::vector<float>{1, 2}, .negatives = std::vector<float>{kNan, 0}});
  EXPECT_TRUE(std::isnan(ranks[0]));
  EXPECT_EQ(ranks[1], 1);
}

}  // namespace
}  // namespace permafrost::nn
