// A cache that rounds batches up to a few planned shapes, and its captures before the first step.
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr spec::PolicyOptions kLadder{.shapes = spec::Shapes::kLadder};

class LadderCacheTest : public CacheFixture {
 protected:
  LadderCacheTest() {
    for (const int64_t nodes : {10, 30, 31, 60, 88, 90}) plan_.train_schedule.push_back({Padded(nodes), 10});
    plan_.eval_schedule = {{Padded(19), 4}, {Padded(20), 4}, {Padded(40), 4}};
  }
  // Returns the nodes of the mode's executables, in the order of their capture.
  std::vector<int64_t> HeldNodes(Mode mode) const {
    std::vector<int64_t> nodes;
    for (const EntryInfo& info : cache_->entries())
      if (info.mode == mode) nodes.push_back(info.shape.nodes);
    return nodes;
  }
};

TEST_F(LadderCacheTest, WhichOptionsAskForIt) {
  const struct {
    const char* why;
    spec::PolicyOptions options;
    int64_t rungs;
  } kCases[] = {
      {"a few shapes: all of them", kLadder, 6},
      {"at most so many", {.shapes = spec::Shapes::kLadder, .rungs = 3}, 3},
      {"auto under freeze, where nothing is dynamic", {.shapes = spec::Shapes::kAuto, .rungs = 2}, 2},
      {"dynamic, where nothing is", {.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kDynamic, .rungs = 2}, 2},
      {"under always", {.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kLadder, .rungs = 1}, 1},
      {"auto under always counts shapes", {.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kAuto}, 0},
      {"exact", {.shapes = spec::Shapes::kExact, .rungs = 3}, 0},
      {"never keeps nothing", {.policy = spec::Policy::kNever, .shapes = spec::Shapes::kLadder}, 0},
      {"so does clear per step", {.policy = spec::Policy::kClearPerStep, .shapes = spec::Shapes::kLadder}, 0},
  };
  auto_shapes_ = spec::Shapes::kAuto;
  for (const auto& c : kCases) EXPECT_EQ(Make(c.options).of(Mode::kTrain).rungs, c.rungs) << c.why;
}

TEST_F(LadderCacheTest, TheWarmUpKeepsWithinTheLimit) {
  Make({.shapes = spec::Shapes::kLadder, .max_executables = 5});
  EXPECT_THAT(warnings_,
              ElementsAre("max_executables 5 leaves room for 3 of 6 planned training executables and 2 of 3 planned "
                          "evaluation executables: batches are padded farther, or run eager where none is large "
                          "enough"));
  EXPECT_THAT(Train(25), ElementsAre("capture train 90", "capture train 60", "capture train 31", "capture eval 40",
                                     "capture eval 20", "pad 31", "replay train 31"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().cut_executables, 3);
  EXPECT_EQ(Stats(Mode::kEval).cut_executables, 1);
  EXPECT_EQ(warnings_.size(), 1U) << "nothing more is to come that the limit would keep out";
  // If only one executable is allowed, evaluation gets none.
  Make({.shapes = spec::Shapes::kLadder, .max_executables = 1});
  EXPECT_THAT(Train(25), ElementsAre("capture train 90", "pad 90", "replay train 90"));
  EXPECT_THAT(Eval(19), ElementsAre("pad 19", "eager eval 19"));
  EXPECT_EQ(Stats(Mode::kEval).misses_by_cause.of(Cause::kLimit), 1);
}

TEST_F(LadderCacheTest, WhatALimitLeavesIsToldOnceItIsNear) {
  Make({.shapes = spec::Shapes::kLadder, .max_executables = 10});
  Train(25);
  EXPECT_THAT(warnings_, ElementsAre("the graph cache holds 9 of at most 10 executables (max_executables)"));
}

// A command that changes the limit leads to the same plan as a resume under that limit.
TEST_F(LadderCacheTest, AnotherLimitCutsOrExtendsTheLadderAtOnce) {
  const struct {
    int64_t limit;
    std::vector<int64_t> train;
    size_t eval;
  } kSteps[] = {{5, {90, 60, 31}, 2}, {0, {90, 88, 60, 31, 30, 10}, 3}, {1, {90}, 0}, {4, {90, 31}, 2}};
  Make(kLadder);
  Train(25);
  int64_t step = 1;
  for (const auto& s : kSteps) {
    Apply(CommandKind::kUpdatePolicy, step, {.max_executables = s.limit});
    EXPECT_TRUE(cache_->snapshot().frozen) << s.limit;
    EXPECT_FALSE(cache_->ready()) << s.limit;
    Train(25, step++);
    EXPECT_EQ(HeldNodes(Mode::kTrain), s.train) << s.limit;
    EXPECT_EQ(HeldNodes(Mode::kEval).size(), s.eval) << s.limit;
    EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, std::ssize(s.train)) << s.limit;
    const Snapshot snapshot = cache_->snapshot();
    const std::vector<EntryInfo> entries = cache_->entries();
    const std::vector<BatchShape> ladder = cache_->ladder(Mode::kTrain);
    Make(kLadder);
    cache_->Restore(snapshot, entries);
    EXPECT_EQ(cache_->ladder(Mode::kTrain), ladder) << s.limit;
    EXPECT_EQ(cache_->captures_ahead(), std::ssize(entries)) << "each again, and nothing else";
  }
}

TEST_F(LadderCacheTest, SoDoesThatOfOneExecutableForEveryShape) {
  auto_shapes_ = spec::Shapes::kAuto;
  compiler_.no_dynamic_reason.clear();
  Make({.max_executables = 1});
  EXPECT_THAT(Train(25), ElementsAre("capture every train", "pad 25", "replay every train 25"));
  EXPECT_THAT(Eval(19), ElementsAre("pad 19", "eager eval 19"));
  EXPECT_EQ(cache_->entries().size(), 1U);
  EXPECT_TRUE(cache_->snapshot().frozen);
  // Steps without a dynamic executable get ladders, and both ladders share the limit.
  compiler_.resisting = {Mode::kTrain, Mode::kEval};
  Make({.max_executables = 4});
  Train(25);
  EXPECT_EQ(Stats().entries, 2);
  EXPECT_EQ(Stats(Mode::kEval).entries, 2);
}

// The mode runs eager whatever on_miss says, because the limit leaves it without executables.
TEST_F(LadderCacheTest, AModeThatTheLimitLeavesNothingRunsEager) {
  for (const spec::OnMiss on_miss :
       {spec::OnMiss::kReject, spec::OnMiss::kTransient, spec::OnMiss::kEager, spec::OnMiss::kPad}) {
    for (const bool dynamic : {false, true}) {
      auto_shapes_ = dynamic ? spec::Shapes::kAuto : spec::Shapes::kLadder;
      compiler_.no_dynamic_reason = dynamic ? "" : "one shape each";
      Make({.on_miss = on_miss, .max_executables = 1});
      Train(25);
      EXPECT_THAT(Eval(19), ElementsAre("pad 19", "eager eval 19")) << static_cast<int>(on_miss) << dynamic;
      EXPECT_EQ(Stats(Mode::kEval).misses_by_cause.of(Cause::kLimit), 1);
    }
  }
}

TEST_F(LadderCacheTest, ALowerLimitTakesEvaluationsExecutableForEveryShape) {
  auto_shapes_ = spec::Shapes::kAuto;
  compiler_.no_dynamic_reason.clear();
  Make({});
  Train(25);
  EXPECT_EQ(cache_->entries().size(), 2U);
  Apply(CommandKind::kUpdatePolicy, 1, {.max_executables = 1});
  EXPECT_EQ(cache_->entries().size(), 1U);
  EXPECT_EQ(Stats(Mode::kEval).cut_executables, 1);
  EXPECT_THAT(Train(30, 1), ElementsAre("pad 30", "replay every train 30"));
  EXPECT_THAT(Eval(19), ElementsAre("pad 19", "eager eval 19"));
  Apply(CommandKind::kUpdatePolicy, 2, {.max_executables = 2});
  Train(30, 2);
  EXPECT_EQ(cache_->entries().size(), 2U);
  EXPECT_EQ(Stats(Mode::kEval).cut_executables, 0);
}

TEST_F(LadderCacheTest, RungsThatArePlannedNoMoreAreNotTakenOver) {
  plan_.train_rungs = {Padded(30), Padded(60), Padded(90)};
  plan_.train_schedule = {{Padded(30), 3}, {Padded(60), 3}, {Padded(90), 0}};
  Make(kLadder);
  Train(25);
  const Snapshot snapshot = cache_->snapshot();
  std::vector<EntryInfo> entries = cache_->entries();
  entries[1].shape = Padded(57);  // a version with other rungs had this shape
  Make(kLadder);
  cache_->Restore(snapshot, entries);
  EXPECT_THAT(HeldNodes(Mode::kTrain), ElementsAre(90, 30));
  Train(50, 1);
  EXPECT_THAT(HeldNodes(Mode::kTrain), ElementsAre(90, 30, 60)) << "captured before the step";
}

TEST_F(LadderCacheTest, AllRungsAreCapturedBeforeTheFirstStepTheLargestFirstAndNoneAfter) {
  Make({.freeze_at = 2, .shapes = spec::Shapes::kLadder, .rungs = 3});
  EXPECT_THAT(Train(25), ElementsAre("capture train 90", "capture train 60", "capture train 31", "capture eval 40",
                                     "capture eval 20", "capture eval 19", "pad 31", "replay train 31"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(cache_->snapshot().freeze_step, 0);
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 3) << "a freeze point counts shapes as they come";
  EXPECT_THAT(infos_,
              testing::IsSupersetOf({"graph cache warmed up before step 1: 6 captures in 12.00 s",
                                     "graph cache frozen before the first step with 3 training and 3 evaluation "
                                     "executables"}));
  EXPECT_THAT(Train(90, 1), ElementsAre("pad 90", "replay train 90"));
  EXPECT_THAT(Train(61, 2), ElementsAre("pad 90", "replay train 90"));
  EXPECT_THAT(Train(60, 3), ElementsAre("pad 60", "replay train 60"));
  EXPECT_THAT(Eval(20, 4), ElementsAre("pad 20", "replay eval 20"));
  const ModeStats train = Stats();
  EXPECT_EQ(train.hits, 2) << "at their own shape";
  EXPECT_EQ(train.padded_hits, 2);
  EXPECT_EQ(train.misses, 0) << "every step is a replay";
  EXPECT_EQ(train.captures, 3);
  EXPECT_EQ(train.capacity, 3);
  EXPECT_EQ(train.rejected_inserts, 0);
}

TEST_F(LadderCacheTest, WhatTheOwnerCapturesAheadNoStepDoes) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  EXPECT_FALSE(cache_->ready());
  EXPECT_EQ(cache_->captures_ahead(), 4);
  for (int64_t left = 3; left >= 0; --left) {
    ASSERT_TRUE(cache_->CaptureNext(7).ok());
    EXPECT_EQ(cache_->captures_ahead(), left);
    EXPECT_EQ(cache_->ready(), left == 0);
    EXPECT_EQ(cache_->snapshot().frozen, left == 0);
  }
  EXPECT_EQ(compiler_.Take().size(), 4U);
  EXPECT_EQ(cache_->snapshot().freeze_step, 7);
  EXPECT_THAT(Train(50, 7), ElementsAre("pad 90", "replay train 90"));
}

TEST_F(LadderCacheTest, UnderAlwaysRungsAreCapturedAsTheyAreMet) {
  Make({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kLadder, .rungs = 2});
  EXPECT_THAT(Train(25), ElementsAre("capture train 31", "pad 31", "replay train 31"));
  EXPECT_THAT(Train(31), ElementsAre("pad 31", "replay train 31"));
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().capacity, 2);
  EXPECT_THAT(Apply(CommandKind::kFreeze, 2), IsEmpty());
  EXPECT_THAT(Train(31, 2),
              ElementsAre("capture train 90", "capture eval 40", "capture eval 20", "pad 31", "replay train 31"));
}

TEST_F(LadderCacheTest, AStepThatCannotBeCapturedIsTriedOnceAndRunsEager) {
  compiler_.breaks = {{Mode::kTrain, "aten::item"}};
  Make(kLadder);
  EXPECT_EQ(cache_->captures_ahead(), 9);
  ASSERT_TRUE(cache_->CaptureNext(0).ok());
  EXPECT_EQ(cache_->captures_ahead(), 3) << "what would break again is not tried";
  EXPECT_THAT(Train(25), ElementsAre("break train 90", "capture eval 40", "capture eval 20", "capture eval 19",
                                     "pad 25", "eager train 25"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().graph_breaks, 1);
}

TEST_F(LadderCacheTest, AnErrorOfACaptureIsTriedAgain) {
  compiler_.fail_captures = {Mode::kEval};
  Make({.shapes = spec::Shapes::kLadder, .rungs = 1});
  EXPECT_EQ(TryRun(Mode::kTrain, 20).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(cache_->ready());
  compiler_.fail_captures.clear();
  compiler_.Take();
  EXPECT_THAT(Train(20), ElementsAre("capture eval 40", "pad 90", "replay train 90"));
}

TEST_F(LadderCacheTest, ABatchAboveTheLadderIsHandledAsAMiss) {
  Make(kLadder);
  Train(25);
  EXPECT_THAT(Train(95, 1), ElementsAre("pad 95", "eager train 95"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("holds no executable that a training batch")));
}

TEST_F(LadderCacheTest, BatchesThatComeRoundedUpKeepTheirRungs) {
  plan_.train_rungs = {Padded(45), Padded(90)};
  plan_.train_schedule.clear();
  plan_.eval_schedule.clear();
  Make({.shapes = spec::Shapes::kLadder, .rungs = 1});
  EXPECT_THAT(Train(45), ElementsAre("capture train 90", "capture train 45", "capture eval 40", "capture eval 20",
                                     "pad 45", "replay train 45"));
  EXPECT_EQ(Stats().rungs, 2);
}

TEST_F(LadderCacheTest, WhereNothingIsPlannedShapesAreExact) {
  plan_ = {};
  Make(kLadder);
  EXPECT_THAT(Train(45), ElementsAre("capture train 45", "pad 45", "replay train 45"));
  EXPECT_EQ(Stats().rungs, 0);
}

TEST_F(LadderCacheTest, ReplaysAreTimedEntryByEntry) {
  compiler_.replay_time = absl::Milliseconds(3);
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  for (const int64_t nodes : {20, 25, 80}) Train(nodes);
  std::map<int64_t, std::pair<int64_t, double>> costs;
  for (const EntryInfo& info : cache_->entries())
    if (info.mode == Mode::kTrain) costs[info.shape.nodes] = {info.replays, info.replay_seconds};
  EXPECT_EQ(costs[31].first, 2);
  EXPECT_DOUBLE_EQ(costs[31].second, 0.006);
  EXPECT_EQ(costs[90].first, 1);
  EXPECT_DOUBLE_EQ(costs[90].second, 0.003);
}

// ---- Commands

TEST_F(LadderCacheTest, AnotherNumberOfRungsIsAnotherLadder) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 1});
  Train(25);
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 1, {.rungs = 2}), Contains("drop train 90"));
  EXPECT_FALSE(cache_->ready());
  EXPECT_THAT(Train(25, 1), ElementsAre("capture train 90", "capture train 31", "capture eval 40", "capture eval 20",
                                        "pad 31", "replay train 31"));
  EXPECT_EQ(cache_->snapshot().freeze_step, 1);
  EXPECT_THAT(HeldNodes(Mode::kTrain), ElementsAre(90, 31));
}

TEST_F(LadderCacheTest, EachKindDropsWhatIsOfAnother) {
  compiler_.no_dynamic_reason.clear();
  Make(kLadder);
  Train(25);
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 1, {.shapes = spec::Shapes::kDynamic}), testing::SizeIs(9));
  EXPECT_THAT(Train(25, 1),
              ElementsAre("capture every train", "capture every eval", "pad 25", "replay every train 25"));
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 2, {.freeze_at = 1, .shapes = spec::Shapes::kExact}),
              testing::SizeIs(2));
  EXPECT_EQ(cache_->captures_ahead(), 0) << "exact shapes are captured as they come";
  EXPECT_THAT(Train(25, 2), Contains("capture train 25"));
  Apply(CommandKind::kUpdatePolicy, 3, {.shapes = spec::Shapes::kLadder, .rungs = 1});
  EXPECT_THAT(Train(25, 3), ElementsAre("capture train 90", "capture eval 40", "pad 90", "replay train 90"));
}

TEST_F(LadderCacheTest, AClearOfAFrozenCacheIsMadeGoodBeforeTheNextStep) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 1});
  Train(25);
  Apply(CommandKind::kClear, 1);
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(cache_->captures_ahead(), 2);
  EXPECT_THAT(Eval(25, 1), ElementsAre("capture train 90", "capture eval 40", "pad 40", "replay eval 40"));
}

TEST_F(LadderCacheTest, AThawedCacheCapturesAsItGoes) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 1});
  Apply(CommandKind::kThaw);
  EXPECT_THAT(Train(25), ElementsAre("capture train 90", "pad 90", "replay train 90"));
  EXPECT_THAT(Eval(25), ElementsAre("capture eval 40", "pad 40", "replay eval 40"));
  EXPECT_FALSE(cache_->snapshot().frozen);
}

// ---- Resumes

TEST_F(LadderCacheTest, AResumePadsAsBeforeAndCapturesFirst) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  Train(25);
  const Snapshot snapshot = *SnapshotFromJson(ToJson(cache_->snapshot()));
  const std::vector<EntryInfo> entries = *EntriesFromJson(ToJson(cache_->entries()));
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  cache_->Restore(snapshot, entries);
  EXPECT_EQ(Stats().rungs, 2);
  EXPECT_EQ(Stats().awaiting_recapture, 2);
  EXPECT_EQ(cache_->captures_ahead(), 4);
  EXPECT_THAT(Train(20, 1), ElementsAre("capture train 90", "capture train 31", "capture eval 40", "capture eval 20",
                                        "pad 31", "replay train 31"));
  EXPECT_EQ(Stats().recaptures, 2);
  EXPECT_EQ(Stats().awaiting_recapture, 0);
  EXPECT_EQ(Stats().frozen_captures, 0);
}

// A run that was stopped between two captures makes the remaining ones.
TEST_F(LadderCacheTest, AResumeInTheMiddleOfAWarmUpEndsIt) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  ASSERT_TRUE(cache_->CaptureNext(0).ok());
  EXPECT_THAT(compiler_.Take(), ElementsAre("capture train 90"));
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  cache_->Restore(snapshot, entries);
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(20), ElementsAre("capture train 90", "capture train 31", "capture eval 40", "capture eval 20",
                                     "pad 31", "replay train 31"));
  EXPECT_TRUE(cache_->snapshot().frozen);
}

}  // namespace
}  // namespace permafrost::graphcache
