// Gradients of gathered rows as regions of their own, and what a sum computes as it adds up.
#include "nn/kernels/edge_region_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "nn/region_builder.h"

namespace permafrost::nn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::optional<SourceGradient> GradientOf(EdgeRegion region, int32_t input) {
  const std::vector<char> given(region.outputs.size(), 1);
  return GradientBySource(RegionPlan(std::move(region)), input, given);
}

// The sums of the forward pass that compute what they add up.
int64_t SumsThatCompute(const EdgeRegion& region) {
  return std::ranges::count_if(RegionPlan(region).forward.summed,
                               [](const SummedValue& value) { return value.step != -1; });
}

TEST(GradientBySource, OfASumGathersTheGradientsOfTheTargets) {
  RegionBuilder b;
  const std::optional<SourceGradient> gradient = GradientOf(b.Build({b.Sum(b.Gather(64, 0))}), 0);
  ASSERT_TRUE(gradient);
  EXPECT_EQ(ToString(gradient->rows),
            "0: edge[64] = gather(input 0, index 0)\n"
            "1: target[64] = sum(0)\n"
            "output: 1\n");
  EXPECT_THAT(gradient->row_inputs, ElementsAre(RegionSource{RegionSource::Kind::kGradient, 0}));
  EXPECT_THAT(gradient->row_indices, ElementsAre(-1));
  EXPECT_THAT(gradient->targets.outputs, IsEmpty());
}

TEST(GradientBySource, OfGineReadsItsOwnRowsAsTargets) {
  const std::optional<SourceGradient> gradient = GradientOf(GineRegion(64), 0);
  ASSERT_TRUE(gradient);
  EXPECT_EQ(SumsThatCompute(gradient->rows), 1) << ToString(gradient->rows);
  EXPECT_THAT(gradient->row_inputs, testing::UnorderedElementsAre(RegionSource{RegionSource::Kind::kGradient, 0},
                                                                  RegionSource{RegionSource::Kind::kInput, 0},
                                                                  RegionSource{RegionSource::Kind::kInput, 1}));
  EXPECT_THAT(gradient->row_indices, testing::UnorderedElementsAre(-1, 1));
}

TEST(GradientBySource, ComputesATargetsPartOncePerTarget) {
  RegionBuilder b;
  const int32_t degree = b.OpX(RegionOp::kClampMin, b.Count(), 1);
  const std::optional<SourceGradient> gradient =
      GradientOf(b.Build({b.Op(RegionOp::kDiv, b.Sum(b.Gather(64, 0)), degree)}), 0);
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->targets.outputs.size(), 1);
  EXPECT_THAT(gradient->row_inputs, ElementsAre(RegionSource{RegionSource::Kind::kTargets, 0}));
}

TEST(GradientBySource, StaysWithTilesWhereValuesCostOrDependOnAllEdgesOfATarget) {
  EXPECT_FALSE(GradientOf(SoftmaxRegion(64, 4), 0));
  RegionBuilder max;
  EXPECT_FALSE(GradientOf(max.Build({max.Reduce(RegionOp::kMax, max.Gather(64, 0))}), 0));
  RegionBuilder exp;
  EXPECT_FALSE(GradientOf(exp.Build({exp.Sum(exp.OpX(RegionOp::kExp, exp.Gather(64, 0)))}), 0));
  RegionBuilder detached;
  EXPECT_FALSE(GradientOf(detached.Build({detached.Sum(detached.Detach(detached.Gather(64, 0)))}), 0));
}

TEST(SummedValues, AreComputedBySumsThatAloneReadThem) {
  EXPECT_EQ(SumsThatCompute(GineRegion(64)), 1);
  EXPECT_EQ(SumsThatCompute(GineRegion(8)), 0) << "rows too narrow to be read in place";
  RegionBuilder weighted;
  EXPECT_EQ(SumsThatCompute(
                weighted.Build({weighted.Sum(weighted.Op(RegionOp::kMul, weighted.Gather(64, 0), weighted.Edge(1)))})),
            1);
  RegionBuilder twice;
  const int32_t product = twice.Op(RegionOp::kMul, twice.Gather(64, 0), twice.Edge(64));
  EXPECT_EQ(SumsThatCompute(twice.Build({twice.Sum(product), product})), 0) << "an output keeps its values";
  RegionBuilder other;
  EXPECT_EQ(
      SumsThatCompute(other.Build({other.Sum(other.Op(RegionOp::kMaximum, other.Gather(64, 0), other.Edge(64)))})), 0);
}

}  // namespace
}  // namespace permafrost::nn
