// A cache does under each policy what its plan predicts.
#include "graphcache/cache_plan.h"

#include <algorithm>
#include <map>
#include <random>

#include "graphcache/cache_fixture.h"
#include "graphcache/shape_plan.h"

namespace permafrost::graphcache {
namespace {

// Returns real sizes of a run's batches. They take so few values that some shapes recur.
std::vector<BatchShape> RandomBatches(uint32_t seed, int count) {
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<BatchShape> batches;
  for (int i = 0; i < count; ++i) {
    const int64_t nodes = 8 * pick(3, 14);
    batches.push_back({nodes, 2 * nodes + 10 * pick(0, 2), pick(0, 9) == 0 ? 3 : 4});
  }
  return batches;
}

PlannedSchedule ScheduleOf(const std::vector<BatchShape>& batches) {
  PlannedSchedule schedule{.batching = "random", .epochs = 1};
  std::map<BatchShape, size_t> known;
  ShapeCounter counter;
  for (const BatchShape& real : batches) {
    const BatchShape least{real.nodes + 1, real.edges, real.graphs + 1};
    const auto [it, is_new] = known.try_emplace(least, schedule.train.size());
    if (is_new) schedule.train.push_back({.shape = least});
    PlannedShape& shape = schedule.train[it->second];
    ++shape.batches;
    shape.real_rows += Rows(real);
    shape.dynamic_rows += Rows(AtLeastDynamic(least));
    counter.Add(least);
  }
  schedule.ceiling = Ceiling(counter.Counts());
  schedule.first_epoch_shapes = std::ssize(schedule.train);
  return schedule;
}

class CachePlanTest : public CacheFixture {
 protected:
  CachePlanTest() { auto_shapes_ = spec::Shapes::kAuto; }
  // Runs the batches through a cache and compares its statistics with the plan.
  void ExpectAsPlanned(const spec::PolicyOptions& options, const std::vector<BatchShape>& batches) {
    const PlannedSchedule schedule = ScheduleOf(batches);
    ShapeCounter counter;
    for (const PlannedShape& shape : schedule.train) counter.Add(shape.shape, shape.batches);
    plan_ = {.train_ceiling = schedule.ceiling,
             .train_shapes = counter.distinct(),
             .known_train_shapes = counter.distinct(),
             .train_rungs = {},
             .eval_rungs = {},
             .train_schedule = counter.Counts()};
    GraphCache& cache = Make(options);
    int64_t step = 0;
    while (!cache.ready()) ASSERT_EQ(cache.CaptureNext(step), absl::OkStatus());
    for (const BatchShape& real : batches) {
      FakeBatch batch(compiler_, real);
      ASSERT_EQ(cache.Run(Mode::kTrain, batch, step++).status(), absl::OkStatus());
    }
    const Snapshot snapshot = cache.snapshot();
    const ModeStats& did = snapshot.of(Mode::kTrain);
    const PlanRow row = PlanPolicy(options, schedule, snapshot.freeze_point.freeze_at, compiler_.no_dynamic_reason,
                                   /*costs=*/std::nullopt);
    const std::string what = absl::StrCat(std::string(spec::kPolicyNames.Name(options.policy)), ", ",
                                          std::string(spec::kShapesNames.Name(options.shapes)), ", ",
                                          std::string(spec::kOnMissNames.Name(options.on_miss)), ", freeze at ",
                                          snapshot.freeze_point.freeze_at);
    EXPECT_EQ(row.shapes == spec::Shapes::kDynamic, did.dynamic) << what;
    EXPECT_EQ(row.shapes == spec::Shapes::kLadder, did.rungs > 0) << what;
    EXPECT_EQ(row.train_executables, did.entries) << what;
    EXPECT_EQ(row.captures, did.captures) << what;
    EXPECT_EQ(row.replayed, did.hits + did.padded_hits) << what;
    EXPECT_EQ(row.padded, did.padded_hits) << what;
    EXPECT_EQ(row.eager, did.eager_steps) << what;
    EXPECT_EQ(row.real_rows, did.nodes + did.edges) << what;
    EXPECT_EQ(row.padding_rows, did.padding_nodes + did.padding_edges) << what;
    EXPECT_EQ(Batches(schedule), std::ssize(batches));
  }
};

TEST_F(CachePlanTest, ACacheDoesWhatItsPlanSays) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<BatchShape> batches = RandomBatches(seed, 150);
    for (const spec::Policy policy : {spec::Policy::kAlways, spec::Policy::kNever, spec::Policy::kClearPerStep}) {
      ExpectAsPlanned({.policy = policy, .shapes = spec::Shapes::kExact}, batches);
    }
    for (const spec::OnMiss on_miss : {spec::OnMiss::kPad, spec::OnMiss::kEager, spec::OnMiss::kTransient}) {
      for (const int64_t freeze_at : {1, 7, 1000}) {
        ExpectAsPlanned({.freeze_at = freeze_at, .on_miss = on_miss, .shapes = spec::Shapes::kExact}, batches);
      }
    }
    for (const int64_t rungs : {1, 3, 8}) {
      ExpectAsPlanned({.shapes = spec::Shapes::kLadder, .rungs = rungs}, batches);
      ExpectAsPlanned({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kLadder, .rungs = rungs}, batches);
    }
    for (const int64_t limit : {1, 2, 6, 30}) {
      ExpectAsPlanned({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kExact, .max_executables = limit},
                      batches);
      ExpectAsPlanned({.shapes = spec::Shapes::kLadder, .max_executables = limit}, batches);
      ExpectAsPlanned({.freeze_at = 20, .shapes = spec::Shapes::kExact, .max_executables = limit}, batches);
      ExpectAsPlanned(
          {.freeze_at = 20, .on_miss = spec::OnMiss::kEager, .shapes = spec::Shapes::kExact, .max_executables = limit},
          batches);
    }
    // The fakes have no dynamic executables, so kAuto means a ladder.
    ExpectAsPlanned({.shapes = spec::Shapes::kAuto}, batches);
    compiler_.no_dynamic_reason.clear();
    ExpectAsPlanned({.shapes = spec::Shapes::kDynamic}, batches);
    ExpectAsPlanned({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kDynamic}, batches);
    compiler_.no_dynamic_reason = "the test has none";
  }
}

PlannedSchedule ThreeShapes() {
  return {.batching = "random",
          .train = {{.shape = {11, 20, 5}, .batches = 6, .real_rows = 180, .dynamic_rows = 186},
                    {.shape = {21, 40, 5}, .batches = 3, .real_rows = 180, .dynamic_rows = 183},
                    {.shape = {31, 60, 5}, .batches = 1, .real_rows = 90, .dynamic_rows = 91}},
          .first_epoch_shapes = 3,
          .epochs = 1,
          .ceiling = {31, 60, 5},
          .eval_rungs = {{11, 20, 5}, {21, 40, 5}},
          .eval_shapes = 2};
}

TEST(CachePlanCostsTest, AddUpByHand) {
  const StepCosts costs{.replay = {.fixed = 1, .per_row = 0.1},
                        .eager = {.fixed = 2, .per_row = 0.2},
                        .padding_row = 0.01,
                        .capture = 100,
                        .eval_capture = 50,
                        .dynamic_capture = 300,
                        .dynamic_eval_capture = 150,
                        .entry_bytes = 10,
                        .eval_entry_bytes = 5,
                        .dynamic_entry_bytes = 20,
                        .dynamic_eval_entry_bytes = 7,
                        .shared_bytes = 1000};
  const PlanRow never = PlanPolicy({.policy = spec::Policy::kNever}, ThreeShapes(), 0, "", costs);
  EXPECT_NEAR(*never.train_seconds, 10 * 2 + 450 * 0.2 + 0.1, 1e-9) << "each batch has its padding node";
  EXPECT_NEAR(*never.step_seconds, 11.01, 1e-9);
  EXPECT_EQ(never.bytes, 0);

  const PlanRow always =
      PlanPolicy({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kExact}, ThreeShapes(), 0, "", costs);
  EXPECT_EQ(always.padding_rows, 10);
  EXPECT_NEAR(*always.step_seconds, (10 + 45 + 0.1) / 10, 1e-12);
  EXPECT_NEAR(*always.train_seconds, 10 + 45 + 0.1 + 3 * 100 + 2 * 50, 1e-9);
  EXPECT_EQ(always.bytes, 1000 + 3 * 10 + 2 * 5);

  const PlanRow dynamic = PlanPolicy({.shapes = spec::Shapes::kDynamic}, ThreeShapes(), 3, "", costs);
  EXPECT_NEAR(*dynamic.train_seconds, 10 + 45 + 0.1 + 300 + 150, 1e-9);
  EXPECT_EQ(dynamic.bytes, 1000 + 20 + 7);

  const PlanRow one = PlanPolicy({.shapes = spec::Shapes::kLadder, .rungs = 1}, ThreeShapes(), 3, "", costs);
  EXPECT_EQ(one.padding_rows, 10 * 91 - 450);
  EXPECT_EQ(one.padded, 9);
  EXPECT_NEAR(*one.step_seconds, (10 + 45 + 4.6) / 10, 1e-12);
}

TEST(CachePlanLimitTest, EvaluationHasWhatTheFirstEpochLeaves) {
  PlannedSchedule schedule = ThreeShapes();
  schedule.first_epoch_shapes = 2;
  schedule.eval_shapes = 2;
  schedule.valid_shapes = 1;
  const struct {
    int64_t limit, train, eval;
  } kCases[] = {{0, 3, 2}, {5, 3, 2}, {4, 3, 1}, {3, 2, 1}, {2, 2, 0}, {1, 1, 0}};
  for (const auto& c : kCases) {
    const PlanRow row =
        PlanPolicy({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kExact, .max_executables = c.limit},
                   schedule, 0, "none", std::nullopt);
    EXPECT_EQ(row.train_executables, c.train) << c.limit;
    EXPECT_EQ(row.eval_executables, c.eval) << c.limit;
    const PlanRow unpadded = PlanPolicy(row.options, schedule, 0, "none", std::nullopt, /*pads=*/false);
    EXPECT_EQ(unpadded.padded, 0) << c.limit;
    EXPECT_EQ(unpadded.eager, row.eager + row.padded) << c.limit;
  }
}

TEST(CachePlanRowsTest, SampledBlocksHaveLaddersToo) {
  CachePlan plan{.no_dynamic_reason = "none", .schedules = {ThreeShapes()}};
  PlannedSchedule& schedule = plan.schedules.front();
  schedule.estimated = true;
  schedule.rungs = {{11, 20, 5}, {21, 40, 5}, {31, 60, 5}, {61, 120, 5}};
  schedule.ceiling = schedule.rungs.back();
  plan.freeze_point = {.freeze_at = 1, .source = FreezeSource::kSchedule};
  FillRows(plan);
  std::vector<int64_t> ladders;
  for (size_t i = 1; i < plan.rows.size(); ++i) {
    if (plan.rows[i].shapes == spec::Shapes::kLadder) ladders.push_back(plan.rows[i].train_executables);
  }
  EXPECT_THAT(ladders, testing::ElementsAre(1, 4)) << "with the one that no sampled batch came to, and no longer ones";
  EXPECT_EQ(plan.rows.front().train_executables, 4);
}

TEST(CachePlanCostsTest, RejectCountsTheStepsThatFail) {
  const PlanRow row = PlanPolicy({.freeze_at = 1, .on_miss = spec::OnMiss::kReject, .shapes = spec::Shapes::kExact},
                                 ThreeShapes(), 1, "", std::nullopt);
  EXPECT_EQ(row.rejected, 4) << "the ceiling is captured where misses are padded alone";
  EXPECT_EQ(row.replayed, 5);
}

CachePlan PlanOf(const std::string& no_dynamic_reason) {
  CachePlan plan{.no_dynamic_reason = no_dynamic_reason, .schedules = {ThreeShapes()}};
  plan.freeze_point = {.freeze_at = 2, .source = FreezeSource::kFormula};
  return plan;
}

// A whole graph has one shape. Under #10689's policy the cache then holds one executable less, but captures
// every evaluation again.
TEST(CachePlanRecommendationTest, IsNoCacheThatDropsWhatItCaptures) {
  CachePlan plan = PlanOf("there is one shape");
  PlannedSchedule& schedule = plan.schedules.front();
  schedule.train.resize(1);
  schedule.ceiling = schedule.train.front().shape;
  plan.freeze_point.freeze_at = 1;
  FillRows(plan);
  const auto drops = [](const PlanRow& row) { return row.options.on_miss == spec::OnMiss::kTransient; };
  ASSERT_TRUE(std::ranges::any_of(plan.rows, drops));
  EXPECT_FALSE(drops(plan.rows[static_cast<size_t>(plan.recommended)])) << plan.reason;

  // The policy has several rows, so the reason says which of them is faster.
  for (PlanRow& row : plan.rows) row.train_seconds = drops(row) ? 1 : 2;
  Recommend(plan);
  EXPECT_THAT(plan.reason,
              testing::EndsWith("2 times as long as under the fastest of all, which does not replay every step: "
                                "freeze at 1, transient"));
}

TEST(CachePlanRecommendationTest, IsOneExecutableForEveryShapeWhereThereIsOne) {
  CachePlan plan = PlanOf("");
  FillRows(plan);
  EXPECT_EQ(plan.rows.front().options, plan.options) << "the job's own comes first";
  EXPECT_EQ(plan.rows[static_cast<size_t>(plan.recommended)].train_executables, 1);
  EXPECT_THAT(plan.reason, testing::StartsWith("freeze with one executable for every shape: every step a replay by 2 "
                                               "executables"));
}

TEST(CachePlanRecommendationTest, IsTheFewestRungsThatAddFewRowsElsewhere) {
  CachePlan plan = PlanOf("the device records no steps");
  FillRows(plan);
  const PlanRow& best = plan.rows[static_cast<size_t>(plan.recommended)];
  EXPECT_EQ(best.train_executables, 3) << plan.reason;
  EXPECT_THAT(plan.reason, testing::HasSubstr("with a ladder of "));
}

TEST(CachePlanRecommendationTest, OfEquallyFastOnesWithEquallyManyExecutablesItAddsTheFewestRows) {
  CachePlan plan = PlanOf("");
  plan.options = {.shapes = spec::Shapes::kLadder, .rungs = 2};
  // Measured on a noisy machine, padding rows may seem to cost nothing.
  plan.costs = StepCosts{.replay = {.fixed = 1}, .eager = {.fixed = 2}};
  FillRows(plan);
  EXPECT_THAT(plan.reason, testing::StartsWith("freeze with one executable for every shape")) << "not a ladder of one";
}

TEST(CachePlanRecommendationTest, IsTheFastestSealedOneWhereCostsWereMeasured) {
  CachePlan plan = PlanOf("the device records no steps");
  // Padding rows cost nothing and a capture costs much, so one rung is best.
  plan.costs = StepCosts{.replay = {.fixed = 1}, .eager = {.fixed = 0.1}, .capture = 100};
  FillRows(plan);
  const PlanRow& best = plan.rows[static_cast<size_t>(plan.recommended)];
  EXPECT_EQ(best.train_executables, 1) << plan.reason;
  EXPECT_THAT(plan.reason, testing::HasSubstr("times as long as under the fastest"))
      << "eager is faster here, and keeps nothing";
}

// A step that reads its sizes from the shape allows no padding, so its plan has no padding rows.
TEST_F(CachePlanTest, WithoutPaddingNoLadderIsPlannedAndNoMissIsPadded) {
  for (const char* no_dynamic_reason : {"", "this device has none"}) {
    CachePlan plan{.options = {.shapes = spec::Shapes::kLadder},
                   .freeze_point = {.freeze_at = 5, .source = FreezeSource::kSchedule},
                   .no_dynamic_reason = no_dynamic_reason,
                   .pads = false,
                   .schedules = {ScheduleOf(RandomBatches(1, 60))}};
    FillRows(plan);
    ASSERT_FALSE(plan.rows.empty());
    for (const PlanRow& row : plan.rows) {
      EXPECT_NE(row.shapes, spec::Shapes::kLadder);
      EXPECT_NE(row.options.on_miss, spec::OnMiss::kPad);
    }
    EXPECT_EQ(plan.rows[static_cast<size_t>(plan.recommended)].shapes == spec::Shapes::kDynamic,
              plan.no_dynamic_reason.empty());
  }
}

}  // namespace
}  // namespace permafrost::graphcache
