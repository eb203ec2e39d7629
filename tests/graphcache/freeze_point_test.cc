#include "graphcache/planned_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace permafrost::graphcache {
namespace {

// The sizes of ZINC 12k's train split, computed from its files with Python: directed edges are twice the stored ones.
constexpr GraphSizes kZinc{.graphs = 10'000, .std_nodes = 4.485530148154132, .std_edges = 10.53428923848216};

TEST(FreezePointTest, FollowsTheFormulaOnZinc) {
  const FreezePoint point = FindFreezePoint(0, 32, kZinc, 40);
  EXPECT_EQ(point.freeze_at, 97);
  EXPECT_NEAR(point.effective_size, 9500.5526, 1e-4);
  EXPECT_EQ(point.source, FreezeSource::kFormula);
  EXPECT_EQ(point.no_formula_reason, "");
}

TEST(FreezePointTest, GrowsWithTheSquareRootOfTheBatchSize) {
  // sqrt(9500.55 * 4) = 194.94, truncated.
  EXPECT_EQ(FindFreezePoint(0, 128, kZinc, 0).freeze_at, 194);
}

TEST(FreezePointTest, IsAtLeastFive) {
  // sqrt(1 * 0.5 * 0.5 * 2 pi) is below 2.
  EXPECT_EQ(FindFreezePoint(0, 1, {.graphs = 10, .std_nodes = 0.5, .std_edges = 0.5}, 0).freeze_at, 5);
}

TEST(FreezePointTest, AnExplicitOneWinsEvenWithoutStatistics) {
  EXPECT_EQ(FindFreezePoint(3, 32, kZinc, 40), (FreezePoint{.freeze_at = 3, .source = FreezeSource::kExplicit}));
  EXPECT_EQ(FindFreezePoint(3, 32, {}, 0), (FreezePoint{.freeze_at = 3, .source = FreezeSource::kExplicit}));
}

TEST(FreezePointTest, WithoutUsableStatisticsTheScheduleDecidesAndTheReasonIsSaid) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const struct {
    const char* why;
    GraphSizes sizes;
    const char* reason;
  } kCases[] = {
      {"no graphs", {.graphs = 0, .std_nodes = 1, .std_edges = 1}, "no graphs"},
      {"equal nodes", {.graphs = 9, .std_nodes = 0, .std_edges = 1}, "equally many nodes"},
      {"equal edges", {.graphs = 9, .std_nodes = 1, .std_edges = 0}, "equally many edges"},
      {"not a number", {.graphs = 9, .std_nodes = kNan, .std_edges = 1}, "finite"},
      {"infinite", {.graphs = 9, .std_nodes = 1, .std_edges = kInfinity}, "finite"},
      {"overflows", {.graphs = 9, .std_nodes = 1e200, .std_edges = 1e200}, "finite"},
  };
  for (const auto& c : kCases) {
    const struct {
      int64_t planned, freeze_at;
      FreezeSource source;
    } kPlans[] = {{0, 0, FreezeSource::kNone},
                  {1, 1, FreezeSource::kSchedule},
                  {40, 40, FreezeSource::kSchedule},
                  {1'000'000, kMaxScheduleFreezeAt, FreezeSource::kSchedule}};
    for (const auto& plan : kPlans) {
      const FreezePoint point = FindFreezePoint(0, 32, c.sizes, plan.planned);
      EXPECT_EQ(point.freeze_at, plan.freeze_at) << c.why;
      EXPECT_EQ(point.source, plan.source) << c.why;
      EXPECT_EQ(point.effective_size, 0) << c.why;
      EXPECT_THAT(point.no_formula_reason, testing::HasSubstr(c.reason)) << c.why;
    }
  }
}

TEST(FreezePointTest, HugeSizesStayCountable) {
  EXPECT_GT(FindFreezePoint(0, 32, {.graphs = 9, .std_nodes = 1e150, .std_edges = 1e150}, 0).freeze_at, kZinc.graphs);
}

}  // namespace
}  // namespace permafrost::graphcache
