#include "graphcache/shape_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace permafrost::graphcache {
namespace {

// Plans twenty training shapes and five evaluation shapes.
ShapeSchedule Plan() {
  ShapeSchedule plan{.train_ceiling = {20, 20, 5}, .train_shapes = 20, .known_train_shapes = 20};
  for (int64_t n = 1; n <= 20; ++n) plan.train_schedule.push_back({{n, n, 5}, 1});
  for (int64_t n = 1; n <= 5; ++n) plan.eval_schedule.push_back({{n, n, 5}, 1});
  for (const ShapeCount& s : plan.eval_schedule) plan.eval_rungs.push_back(s.shape);
  return plan;
}

TEST(PlanExecutables, KeepsWithinTheLimit) {
  constexpr int64_t kFreezeAt = 7;
  const struct {
    const char* why;
    int64_t limit, rungs;
    Form form;
    int64_t train, eval;
  } kCases[] = {
      {"without a limit", 0, 8, Form::kLadder, 8, 5},
      {"as many as there may be", 13, 8, Form::kLadder, 8, 5},
      {"one less is training's, as evaluation wants less than half", 12, 8, Form::kLadder, 7, 5},
      {"half each", 8, 8, Form::kLadder, 4, 4},
      {"what evaluation leaves is training's", 15, 16, Form::kLadder, 10, 5},
      {"what training leaves is evaluation's", 6, 2, Form::kLadder, 2, 2},
      {"an odd one is training's", 3, 8, Form::kLadder, 2, 1},
      {"one is training's", 1, 8, Form::kLadder, 1, 0},
      {"one a mode", 2, 8, Form::kDynamic, 1, 1},
      {"one of one mode", 1, 8, Form::kDynamic, 1, 0},
      {"exact: seven, the ceiling, and evaluation's rungs", 0, 8, Form::kExact, 8, 5},
      {"of these, too, half each", 6, 8, Form::kExact, 3, 3},
  };
  for (const auto& c : kCases) {
    const PlannedSet set = PlanExecutables({.rungs = c.rungs, .max_executables = c.limit}, Plan(), {c.form, c.form},
                                           c.form == Form::kExact ? kFreezeAt : 0);
    EXPECT_EQ(set[0].most, c.train) << c.why;
    EXPECT_EQ(set[1].most, c.eval) << c.why;
    if (c.form != Form::kLadder) continue;
    EXPECT_EQ(std::ssize(set[0].shapes), c.train) << c.why;
    EXPECT_EQ(std::ssize(set[1].shapes), c.eval) << c.why;
    EXPECT_EQ(set[0].shapes.back(), (BatchShape{20, 20, 5})) << c.why << ": every batch finds one";
    EXPECT_EQ(set[1].form, c.eval > 0 ? Form::kLadder : Form::kExact) << c.why;
  }
}

TEST(PlanExecutables, OfExactShapesTheCeilingIsTheFirstToBeSealedWith) {
  ShapeSchedule plan = Plan();
  plan.train_rungs = {{5, 5, 5}, {9, 9, 5}, {12, 12, 5}, {20, 20, 5}};
  plan.train_schedule = {{{5, 5, 5}, 1}, {{9, 9, 5}, 1}, {{12, 12, 5}, 40}, {{20, 20, 5}, 0}};
  const std::vector<BatchShape> all = PlanExecutables({}, plan, {Form::kExact, Form::kExact}, 1)[0].shapes;
  EXPECT_EQ(all, (std::vector<BatchShape>{{20, 20, 5}, {5, 5, 5}, {9, 9, 5}, {12, 12, 5}}));
  const std::vector<BatchShape> two =
      PlanExecutables({.max_executables = 4}, plan, {Form::kExact, Form::kExact}, 1)[0].shapes;
  EXPECT_EQ(two, (std::vector<BatchShape>{{20, 20, 5}, {12, 12, 5}})) << "which pad the batches least";
}

TEST(PlanExecutables, TheOneOfEveryShapeIsPlannedWhateverAMissMeans) {
  for (const spec::OnMiss on_miss :
       {spec::OnMiss::kPad, spec::OnMiss::kReject, spec::OnMiss::kEager, spec::OnMiss::kTransient}) {
    for (const int64_t limit : {0, 1}) {
      const PlannedSet set =
          PlanExecutables({.on_miss = on_miss, .max_executables = limit}, Plan(), {Form::kDynamic, Form::kDynamic}, 0);
      EXPECT_FALSE(set[0].shapes.empty()) << spec::kOnMissNames.Name(on_miss);
      EXPECT_EQ(set[0].most, 1) << spec::kOnMissNames.Name(on_miss);
      EXPECT_EQ(set[1].most, limit == 1 ? 0 : 1) << spec::kOnMissNames.Name(on_miss);
    }
  }
}

TEST(PlanExecutables, OfExactShapesOnlyACacheThatPadsOrRejectsSealsWithMoreThanCame) {
  const struct {
    spec::OnMiss on_miss;
    size_t train, eval;
  } kCases[] = {{spec::OnMiss::kPad, 1, 5},
                {spec::OnMiss::kReject, 0, 5},
                {spec::OnMiss::kEager, 0, 0},
                {spec::OnMiss::kTransient, 0, 0}};
  for (const auto& c : kCases) {
    const PlannedSet set = PlanExecutables({.on_miss = c.on_miss}, Plan(), {Form::kExact, Form::kExact}, 7);
    EXPECT_EQ(set[0].shapes.size(), c.train) << spec::kOnMissNames.Name(c.on_miss);
    EXPECT_EQ(set[1].shapes.size(), c.eval) << spec::kOnMissNames.Name(c.on_miss);
  }
}

// The sizes of ZINC 12k's train split, computed from its files in Python. There are twice as many directed edges as
// stored ones.
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

TEST(MostExecutables, FollowFromThePolicy) {
  ShapeSchedule plan{.train_ceiling = {99, 99, 9}, .known_train_shapes = 300};
  for (int64_t n = 1; n <= 300; ++n) plan.train_schedule.push_back({{n, n, 1}, 1});
  for (int64_t n = 1; n <= 50; ++n) plan.eval_schedule.push_back({{n, n, 1}, 1});
  for (int64_t n = 1; n <= 32; ++n) plan.eval_rungs.push_back({n, n, 1});
  constexpr int64_t kFreezeAt = 97;
  const struct {
    const char* why;
    spec::PolicyOptions options;
    int64_t dynamic, without;
  } kCases[] = {
      {"one a mode, or a ladder", {}, 2, 8 + 8},
      {"a ladder", {.shapes = spec::Shapes::kLadder, .rungs = 3}, 3 + 3, 3 + 3},
      {"rungs of evaluation have a limit of their own",
       {.shapes = spec::Shapes::kLadder, .rungs = 64},
       64 + 32,
       64 + 32},
      {"exact, frozen, and the ceiling", {.shapes = spec::Shapes::kExact}, 97 + 1 + 32, 97 + 1 + 32},
      {"exact, frozen late", {.freeze_at = 1000, .shapes = spec::Shapes::kExact}, 97 + 1 + 32, 97 + 1 + 32},
      {"exact, frozen, with the shapes that come",
       {.on_miss = spec::OnMiss::kTransient, .shapes = spec::Shapes::kExact},
       97 + 50,
       97 + 50},
      {"exact, frozen, where a miss ends the job",
       {.on_miss = spec::OnMiss::kReject, .shapes = spec::Shapes::kExact},
       97 + 32,
       97 + 32},
      {"all that come", {.policy = spec::Policy::kAlways}, 350, 350},
      {"within the limit", {.policy = spec::Policy::kAlways, .max_executables = 10}, 10, 10},
      {"without a limit", {.policy = spec::Policy::kAlways, .max_executables = 0}, 350, 350},
      {"nothing is kept", {.policy = spec::Policy::kNever}, 0, 0},
      {"one at a time", {.policy = spec::Policy::kClearPerStep}, 1, 1},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(MostExecutables(c.options, plan, /*dynamic=*/true, kFreezeAt), c.dynamic) << c.why;
    EXPECT_EQ(MostExecutables(c.options, plan, /*dynamic=*/false, kFreezeAt), c.without) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::graphcache
