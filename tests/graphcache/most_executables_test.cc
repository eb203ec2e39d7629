#include "graphcache/planned_set.h"

#include <gtest/gtest.h>

namespace permafrost::graphcache {
namespace {

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
