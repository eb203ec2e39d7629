#include "graphcache/planned_set.h"

#include <gtest/gtest.h>

namespace permafrost::graphcache {
namespace {

// Twenty training shapes and five of evaluation.
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

}  // namespace
}  // namespace permafrost::graphcache
