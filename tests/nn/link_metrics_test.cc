#include "nn/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace permafrost::nn {
namespace {

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Four links with three negatives each: ranks 1, 2.5 (one above, one equal), 4 and 2.5 (all equal).
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

// The K-th highest negative: 7, 7, 7, 4, 3, 3, 2, 2, 1, 0, 0, -9.
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
  // Pairs of a link above a negative, ties counting half.
  double above = 0;
  for (const float link : kLinks)
    for (const float negative : kNegatives) above += link > negative ? 1 : link == negative ? 0.5 : 0;
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kRocAuc), above / static_cast<double>(kLinks.size() * kNegatives.size()));
  EXPECT_DOUBLE_EQ(Of(spec::Metric::kAveragePrecision, {3, 1}, {2, 0}), (1 + 2.0 / 3) / 2);
}

// Negatives that all links share: 7, 3, 3, 0, -9.
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
