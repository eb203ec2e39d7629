#include "graphcache/graph_cache.h"

#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GraphCacheTest : public CacheFixture {};

TEST_F(GraphCacheTest, AlwaysKeepsEachNewShape) {
  Make({.policy = spec::Policy::kAlways});
  // The capture comes before the batch is padded, and the replay serves the same step.
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5"));
  EXPECT_THAT(Train(5), ElementsAre("pad 5", "replay train 5"));
  EXPECT_THAT(Train(4), ElementsAre("capture train 4", "pad 4", "replay train 4"));
  EXPECT_THAT(Eval(5), ElementsAre("capture eval 5", "pad 5", "replay eval 5"));
  EXPECT_THAT(Held(), ElementsAre("train 5", "train 4", "eval 5"));
  EXPECT_EQ(Stats().hits, 1);
  EXPECT_EQ(Stats().misses, 2);
  EXPECT_EQ(Stats().captures, 2);
  EXPECT_EQ(Stats().entries, 2);
  EXPECT_EQ(Stats().capacity, -1);
  EXPECT_EQ(Stats(Mode::kEval).captures, 1);
  EXPECT_EQ(Stats(Mode::kEval).capacity, -1);
}

TEST_F(GraphCacheTest, NeverRunsEagerAndKeepsNothing) {
  Make({.policy = spec::Policy::kNever});
  EXPECT_THAT(Train(5), ElementsAre("pad 5", "eager train 5"));
  EXPECT_THAT(Eval(5), ElementsAre("pad 5", "eager eval 5"));
  EXPECT_EQ(Stats().eager_steps, 1);
  EXPECT_EQ(Stats().misses, 1);
  EXPECT_EQ(Stats().captures, 0);
  EXPECT_EQ(Stats().capacity, 0);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(GraphCacheTest, ClearPerStepDropsAtTheEndOfTheStep) {
  Make({.policy = spec::Policy::kClearPerStep});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5", "drop train 5"));
  }
  EXPECT_EQ(Stats().transient_steps, 2);
  EXPECT_EQ(Stats().captures, 2);
  EXPECT_EQ(Stats().frozen_captures, 0);
  EXPECT_EQ(Stats().misses, 2);
  EXPECT_EQ(Stats().entries, 0);
  EXPECT_EQ(Stats().entry_bytes, 0);
  EXPECT_EQ(Stats().capacity, 0);
}

TEST_F(GraphCacheTest, TheStepThatReachesTheFreezePointEndsWithTheFreeze) {
  Make({.freeze_at = 2});
  EXPECT_THAT(infos_, ElementsAre("the graph cache freezes after 2 training shapes"));
  EXPECT_EQ(Stats().capacity, 3);
  EXPECT_EQ(Stats(Mode::kEval).capacity, 2);
  Train(5, 0);
  Train(5, 1);
  EXPECT_FALSE(cache_->snapshot().frozen);
  compiler_.now += absl::Seconds(7);
  EXPECT_THAT(Train(6, 2), ElementsAre("capture train 6", "pad 6", "replay train 6", "capture train 90",
                                       "capture eval 20", "capture eval 40"));
  const Snapshot s = cache_->snapshot();
  EXPECT_TRUE(s.frozen);
  EXPECT_TRUE(s.armed);
  EXPECT_EQ(s.freeze_step, 3);
  EXPECT_EQ(s.freeze_time, compiler_.now);
  EXPECT_EQ(s.of(Mode::kTrain).entries, 3);
  EXPECT_EQ(s.of(Mode::kTrain).capacity, 3);
  EXPECT_EQ(s.of(Mode::kEval).capacity, 2);
  // The ceilings count as captures. They are not misses, because no step asked for them.
  EXPECT_EQ(s.of(Mode::kTrain).captures, 3);
  EXPECT_EQ(s.of(Mode::kTrain).misses, 2);
  EXPECT_EQ(s.of(Mode::kTrain).frozen_captures, 0);
  EXPECT_EQ(s.of(Mode::kEval).captures, 2);
  EXPECT_EQ(s.of(Mode::kEval).misses, 0);
  EXPECT_THAT(infos_.back(), HasSubstr("frozen after step 3 with 3 training and 2 evaluation"));
  EXPECT_EQ(cache_->entries()[2].created_step, 3);
}

TEST_F(GraphCacheTest, WhatIsHeldIsNotCapturedAgainByTheFreeze) {
  Make({.freeze_at = 2});
  Eval(30);
  Train(90);
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5", "capture eval 20"));
}

TEST_F(GraphCacheTest, TheFreezePointIsDerivedFromTheSizes) {
  Make({});
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 97);
  EXPECT_EQ(cache_->snapshot().freeze_point.source, FreezeSource::kFormula);
  EXPECT_EQ(Stats().capacity, 98);
}

// If all graphs have equally many nodes, as grids or superpixel images do, the formula has no spread to work with.
TEST_F(GraphCacheTest, WithoutASpreadItFreezesWhenEveryPlannedShapeIsHeld) {
  sizes_ = {.graphs = 100, .std_nodes = 0, .std_edges = 3};
  plan_.train_shapes = plan_.known_train_shapes = 3;
  Make({});
  EXPECT_THAT(infos_, ElementsAre("the graph cache freezes after 3 training shapes, of 3 that the schedule plans: all "
                                  "graphs of the train split have equally many nodes, which leaves the formula without "
                                  "an answer"));
  EXPECT_EQ(cache_->snapshot().freeze_point.source, FreezeSource::kSchedule);
  EXPECT_EQ(Stats().capacity, 4);
  Train(5);
  Train(6);
  EXPECT_FALSE(cache_->snapshot().frozen);
  Train(7);
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(8), ElementsAre("pad 90", "replay train 90"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(GraphCacheTest, WithoutASpreadThePlannedShapesThatAreKeptAreBounded) {
  sizes_ = {.graphs = 100, .std_nodes = 0, .std_edges = 3};
  plan_.train_shapes = 0;
  plan_.known_train_shapes = 5000;
  Make({});
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, kMaxScheduleFreezeAt);
  EXPECT_THAT(infos_, ElementsAre(HasSubstr("of at least 5000 that the schedule plans")));
  for (int64_t i = 0; i < kMaxScheduleFreezeAt; ++i) Train(200 + i);
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().entries, kMaxScheduleFreezeAt + 1) << "and the ceiling";
}

TEST_F(GraphCacheTest, WithoutAFreezePointItNeverFreezesAndSaysSoOnce) {
  sizes_ = {};
  plan_.known_train_shapes = 0;
  Make({});
  for (int i = 1; i < 20; ++i) Train(i);
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().capacity, -1);
  EXPECT_EQ(Stats(Mode::kEval).capacity, 2);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("never freezes by itself: the train split has no graphs")));
}

TEST_F(GraphCacheTest, WithoutAPlanTheFreezeCapturesNothing) {
  plan_ = {};
  Make({.freeze_at = 1});
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5"));
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheTest, PlannedTrainingShapesAreCapturedByAFreezeAfterTheFirstStep) {
  sizes_ = {};
  plan_.train_rungs = {Padded(30), Padded(60), plan_.train_ceiling};
  Make({});
  EXPECT_EQ(cache_->snapshot().freeze_point, (FreezePoint{.freeze_at = 1, .source = FreezeSource::kSchedule}));
  EXPECT_EQ(Stats().capacity, 3);
  EXPECT_THAT(Train(60), ElementsAre("capture train 60", "pad 60", "replay train 60", "capture train 90",
                                     "capture train 30", "capture eval 20", "capture eval 40"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(30), ElementsAre("pad 30", "replay train 30"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(GraphCacheTest, AFrozenCacheWhoseRungsAreOthersNowFreezesAgainWithThose) {
  sizes_ = {};
  plan_.train_rungs = {Padded(30), Padded(60), plan_.train_ceiling};
  Make({});
  Train(60);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  ASSERT_TRUE(snapshot.frozen);
  plan_.train_rungs = {Padded(45), Padded(70), plan_.train_ceiling};
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(45), ElementsAre("capture train 45", "pad 45", "replay train 45", "capture train 70"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().entries, 3);
  EXPECT_THAT(Train(70), ElementsAre("pad 70", "replay train 70"));
  // With the same rungs the cache stays frozen.
  plan_.train_rungs = {Padded(30), Padded(60), plan_.train_ceiling};
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheTest, AnExplicitFreezePointIsReachedWithFewPlannedShapes) {
  plan_.train_rungs = {Padded(30), plan_.train_ceiling};
  Make({.freeze_at = 50});
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 2);
  Train(30);
  EXPECT_FALSE(cache_->snapshot().frozen);
  Train(90);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheTest, EvaluationIsPaddedToItsRungsFromTheStart) {
  Make({.freeze_at = 50});
  EXPECT_THAT(Eval(10), ElementsAre("capture eval 20", "pad 20", "replay eval 20"));
  EXPECT_THAT(Eval(12), ElementsAre("pad 20", "replay eval 20"));
  EXPECT_THAT(Eval(20), ElementsAre("pad 20", "replay eval 20"));
  EXPECT_THAT(Eval(21), ElementsAre("capture eval 40", "pad 40", "replay eval 40"));
  // A batch beyond every rung is an ordinary miss.
  EXPECT_THAT(Eval(41), ElementsAre("capture eval 41", "pad 41", "replay eval 41"));
  const ModeStats s = Stats(Mode::kEval);
  EXPECT_EQ(s.padded_hits, 1);
  EXPECT_EQ(s.hits, 1);
  EXPECT_EQ(s.misses, 3);
  EXPECT_EQ(s.rejected_inserts, 0);
  EXPECT_EQ(s.capacity, 3) << "never below the entries";
}

TEST_F(GraphCacheTest, EvaluationOfAFrozenCacheIsServedFromTheRungs) {
  Make({.freeze_at = 1, .on_miss = spec::OnMiss::kReject});
  Train(5);
  EXPECT_THAT(Eval(10), ElementsAre("pad 20", "replay eval 20"));
  EXPECT_THAT(Eval(21), ElementsAre("pad 40", "replay eval 40"));
  EXPECT_EQ(Stats(Mode::kEval).padded_hits, 2);
  EXPECT_EQ(Stats(Mode::kEval).rejected_inserts, 0);
}

TEST_F(GraphCacheTest, EvaluationUnderAlwaysHasShapesOfItsOwn) {
  Make({.policy = spec::Policy::kAlways});
  EXPECT_THAT(Eval(10), ElementsAre("capture eval 10", "pad 10", "replay eval 10"));
}

TEST_F(GraphCacheTest, AnEvaluationShapeThatIsHeldIsNotPaddedToItsRung) {
  Make({.policy = spec::Policy::kAlways});
  Eval(10);
  Apply(CommandKind::kUpdatePolicy, 0, {.policy = spec::Policy::kFreeze});
  EXPECT_THAT(Eval(10), ElementsAre("pad 10", "replay eval 10"));
  EXPECT_EQ(Stats(Mode::kEval).hits, 1);
}

TEST_F(GraphCacheTest, FrozenPadsIntoTheCheapestThatHoldsTheBatch) {
  Make({.freeze_at = 3, .on_miss = spec::OnMiss::kPad});
  for (const int64_t nodes : {30, 10, 20}) Train(nodes);
  EXPECT_THAT(Train(10), ElementsAre("pad 10", "replay train 10"));
  EXPECT_THAT(Train(9), ElementsAre("pad 10", "replay train 10"));
  EXPECT_THAT(Train(11), ElementsAre("pad 20", "replay train 20"));
  EXPECT_THAT(Train(31), ElementsAre("pad 90", "replay train 90"));
  const ModeStats s = Stats();
  EXPECT_EQ(s.hits, 1);
  EXPECT_EQ(s.padded_hits, 3);
  EXPECT_EQ(s.misses, 3);
  EXPECT_EQ(s.rejected_inserts, 3);
  EXPECT_EQ(s.captures, 4);
  EXPECT_THAT(warnings_, IsEmpty());
  const std::vector<EntryInfo> entries = cache_->entries();
  EXPECT_EQ(entries[1].hits, 1);
  EXPECT_EQ(entries[1].padded_hits, 1);
  EXPECT_EQ(entries[0].padded_hits, 0);
}

// However a step is served, the caller gets that step's outputs, from a batch that knew the step's number.
TEST_F(GraphCacheTest, AStepReturnsItsOwnOutputs) {
  Make({.freeze_at = 2, .on_miss = spec::OnMiss::kTransient});
  const auto run = [&](Mode mode, int64_t nodes, int64_t step) {
    const auto result = TryRun(mode, nodes, step);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : nullptr;
  };
  const auto expect = [](const StepResult& result, const char* event, int64_t step) {
    ASSERT_NE(result, nullptr);
    EXPECT_EQ(result->event, event);
    EXPECT_EQ(result->step, step);
  };
  const StepResult captured = run(Mode::kTrain, 5, 7);
  expect(captured, "replay train 5", 7);
  expect(run(Mode::kTrain, 5, 8), "replay train 5", 8);
  expect(captured, "replay train 5", 7);
  EXPECT_EQ(run(Mode::kTrain, 6, 9), nullptr) << "froze the cache, whose captures use the memory of outputs again";
  expect(run(Mode::kTrain, 4, 10), "replay train 4", 10);
  expect(run(Mode::kEval, 4, 10), "replay eval 4", 10);
  EXPECT_EQ(cache_->Apply(
                {.sequence = 1, .kind = CommandKind::kUpdatePolicy, .update = {.policy = spec::Policy::kNever}}, 11),
            absl::OkStatus());
  expect(run(Mode::kEval, 3, 11), "eager eval 3", 11);
}

TEST_F(GraphCacheTest, CheapestIsByRowsAndNeedsEachDimension) {
  plan_ = {};
  Make({.freeze_at = 2});
  const auto run = [&](const BatchShape& padded) {
    FakeBatch batch(compiler_, {padded.nodes - 1, padded.edges, padded.graphs - 1});
    EXPECT_EQ(cache_->Run(Mode::kTrain, batch, 0).status(), absl::OkStatus());
    return compiler_.Take();
  };
  run({50, 10, 5});
  run({20, 60, 5});
  EXPECT_THAT(run({15, 9, 5}), ElementsAre("pad 50", "replay train 50")) << "60 rows are fewer than 80";
  EXPECT_THAT(run({15, 11, 5}), ElementsAre("pad 20", "replay train 20")) << "the other has too few edges";
  EXPECT_THAT(run({15, 9, 6}), ElementsAre("pad 15", "eager train 15")) << "both have too few graphs";
}

TEST_F(GraphCacheTest, AboveEveryExecutableItRunsEagerAndSaysSoOnce) {
  Make({.freeze_at = 1});
  Train(5);
  EXPECT_THAT(Train(91), ElementsAre("pad 91", "eager train 91"));
  Train(92);
  EXPECT_EQ(Stats().eager_steps, 2);
  EXPECT_EQ(Stats().rejected_inserts, 2);
  EXPECT_EQ(Stats().misses, 3);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("(91 nodes, 182 edges, 5 graphs)")));
}

TEST_F(GraphCacheTest, FrozenEagerRunsUncached) {
  Make({.freeze_at = 1, .on_miss = spec::OnMiss::kEager});
  Train(5);
  EXPECT_THAT(Train(4), ElementsAre("pad 4", "eager train 4"));
  EXPECT_EQ(Stats().eager_steps, 1);
  EXPECT_EQ(Stats().rejected_inserts, 1);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(GraphCacheTest, FrozenTransientCapturesAndDrops) {
  Make({.freeze_at = 1, .on_miss = spec::OnMiss::kTransient});
  Train(5);
  EXPECT_THAT(Train(4), ElementsAre("capture train 4", "pad 4", "replay train 4", "drop train 4"));
  EXPECT_EQ(Stats().frozen_captures, 1);
  EXPECT_EQ(Stats().captures, 2) << "the ceiling, which nothing is padded to, is not captured";
  EXPECT_EQ(Stats().transient_steps, 1);
  EXPECT_EQ(Stats().rejected_inserts, 1);
  EXPECT_EQ(Stats().entries, 1);
  EXPECT_THAT(Eval(4), ElementsAre("capture eval 4", "pad 4", "replay eval 4", "drop eval 4")) << "at no rung";
}

// The cache holds exactly the shapes that came before the freeze, as in #10689.
TEST_F(GraphCacheTest, WhereMissesAreNotPaddedEvaluationHoldsTheShapesThatCame) {
  for (const spec::OnMiss on_miss : {spec::OnMiss::kTransient, spec::OnMiss::kEager}) {
    Make({.freeze_at = 2, .on_miss = on_miss});
    Train(5);
    EXPECT_THAT(Eval(7), ElementsAre("capture eval 7", "pad 7", "replay eval 7"));
    Train(6, 1);
    EXPECT_TRUE(cache_->snapshot().frozen);
    EXPECT_THAT(Held(), ElementsAre("train 5", "eval 7", "train 6"));
    EXPECT_THAT(Eval(7, 2), ElementsAre("pad 7", "replay eval 7"));
    EXPECT_EQ(Stats(Mode::kEval).hits, 1);
  }
}

TEST_F(GraphCacheTest, FrozenRejectFailsAndNamesTheShape) {
  Make({.freeze_at = 1, .on_miss = spec::OnMiss::kReject});
  Train(5);
  const ModeStats before = Stats();
  const absl::Status status = TryRun(Mode::kTrain, 4).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(GetReason(status).reason, "GRAPH_CACHE_MISS");
  EXPECT_THAT(std::string(status.message()), HasSubstr("(4 nodes, 8 edges, 5 graphs)"));
  ModeStats want = before;
  ++want.rejected_inserts;
  EXPECT_EQ(Stats(), want) << "it was no step";
}

TEST_F(GraphCacheTest, AGraphBreakIsToldOnceAndTheModeRunsEager) {
  Make({.policy = spec::Policy::kAlways});
  Train(3);
  compiler_.breaks[Mode::kTrain] = "aten::_local_scalar_dense";
  EXPECT_THAT(Train(5), ElementsAre("break train 5", "pad 5", "eager train 5"));
  EXPECT_THAT(Train(6), ElementsAre("pad 6", "eager train 6")) << "it is not tried again";
  EXPECT_THAT(Train(3), ElementsAre("pad 3", "replay train 3")) << "what was captured stays of use";
  EXPECT_THAT(Eval(5), ElementsAre("capture eval 5", "pad 5", "replay eval 5")) << "the other mode is not broken";
  EXPECT_EQ(Stats().graph_breaks, 1);
  EXPECT_EQ(Stats().eager_steps, 2);
  EXPECT_EQ(Stats().captures, 1);
  EXPECT_EQ(Stats().rejected_inserts, 0);
  EXPECT_THAT(cache_->snapshot().graph_breaks,
              ElementsAre(GraphBreak{Mode::kTrain, "aten::_local_scalar_dense", "reads a value back", 1}));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("aten::_local_scalar_dense: reads a value back")));
}

TEST_F(GraphCacheTest, AClearTriesABrokenStepAgainAndBreaksAreCountedByCause) {
  Make({.policy = spec::Policy::kAlways});
  compiler_.breaks[Mode::kTrain] = "aten::item";
  Train(5);
  Apply(CommandKind::kClear);
  Train(5);
  Apply(CommandKind::kUpdatePolicy, 0, {.policy = spec::Policy::kAlways});
  Train(5);
  EXPECT_THAT(cache_->snapshot().graph_breaks,
              ElementsAre(GraphBreak{Mode::kTrain, "aten::item", "reads a value back", 3}));
  Apply(CommandKind::kClear);
  compiler_.breaks.clear();
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5"));
}

TEST_F(GraphCacheTest, GraphBreaksAreBounded) {
  Make({.policy = spec::Policy::kAlways});
  for (size_t i = 0; i < kMaxGraphBreaks + 5; ++i) {
    compiler_.breaks[Mode::kTrain] = absl::StrCat("op", i);
    Train(5);
    Apply(CommandKind::kClear);
  }
  EXPECT_EQ(cache_->snapshot().graph_breaks.size(), kMaxGraphBreaks);
  EXPECT_EQ(Stats().graph_breaks, kMaxGraphBreaks + 5);
}

TEST_F(GraphCacheTest, ABrokenClearPerStepRunsEager) {
  Make({.policy = spec::Policy::kClearPerStep});
  compiler_.breaks[Mode::kTrain] = "aten::item";
  EXPECT_THAT(Train(5), ElementsAre("break train 5", "pad 5", "eager train 5"));
  EXPECT_THAT(Train(5), ElementsAre("pad 5", "eager train 5"));
  EXPECT_EQ(Stats().transient_steps, 0);
  EXPECT_EQ(Stats().eager_steps, 2);
}

TEST_F(GraphCacheTest, ABrokenModeStillFreezes) {
  Make({.freeze_at = 1});
  compiler_.breaks[Mode::kEval] = "aten::item";
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5", "capture train 90", "break eval 20"))
      << "the second rung is not tried";
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Eval(10), ElementsAre("pad 10", "eager eval 10"));
  EXPECT_EQ(Stats(Mode::kEval).rejected_inserts, 0) << "it would not have been captured";
  EXPECT_EQ(warnings_.size(), 1u) << "the break, and not that nothing is held";
}

TEST_F(GraphCacheTest, OtherErrorsOfTheCompilerFailTheStep) {
  Make({.policy = spec::Policy::kAlways});
  compiler_.fail_captures = {Mode::kTrain};
  EXPECT_TRUE(absl::IsResourceExhausted(TryRun(Mode::kTrain, 5).status()));
  EXPECT_EQ(Stats().misses, 0);
  EXPECT_EQ(Stats().entries, 0);
}

TEST_F(GraphCacheTest, RowsAreCountedRealAndPadded) {
  Make({.freeze_at = 1});
  Train(5);   // its own shape, with one padding node and one padding graph
  Train(80);  // padded to 90, with 79 real nodes, 160 real edges and 4 real graphs
  const ModeStats s = Stats();
  EXPECT_EQ(s.graphs, 4 + 4);
  EXPECT_EQ(s.nodes, 4 + 79);
  EXPECT_EQ(s.edges, 10 + 160);
  EXPECT_EQ(s.padding_graphs, 1 + 1);
  EXPECT_EQ(s.padding_nodes, 1 + 11);
  EXPECT_EQ(s.padding_edges, 0 + 20);
}

TEST_F(GraphCacheTest, BytesSecondsAndUseAreOfThisMoment) {
  Make({.policy = spec::Policy::kAlways});
  Train(5, 7);
  compiler_.now += absl::Seconds(10);
  Train(5, 8);
  const EntryInfo entry = cache_->entries().at(0);
  EXPECT_EQ(entry.bytes, FakeCompiler::kBytes);
  EXPECT_EQ(entry.last_use, compiler_.now);
  EXPECT_EQ(entry.created_step, 7);
  EXPECT_EQ(entry.capture_seconds, 2);
  EXPECT_EQ(entry.hits, 1);
  const Snapshot s = cache_->snapshot();
  EXPECT_EQ(s.of(Mode::kTrain).entry_bytes, FakeCompiler::kBytes);
  EXPECT_EQ(s.of(Mode::kTrain).capture_seconds, 2);
  EXPECT_EQ(s.shared_bytes, 1000);
  EXPECT_EQ(s.train_ceiling, Padded(90));
  EXPECT_EQ(s.eval_ceiling, Padded(40));
  EXPECT_EQ(s.planned_train_shapes, 40);
}

TEST_F(GraphCacheTest, AWallClockThatIsSetChangesNoSeconds) {
  Make({.policy = spec::Policy::kAlways});
  for (const absl::Duration step : {-absl::Hours(1), absl::Hours(1)}) {
    compiler_.wall_clock_step = step;
    Train(step < absl::ZeroDuration() ? 5 : 6);
  }
  for (const EntryInfo& entry : cache_->entries()) EXPECT_EQ(entry.capture_seconds, 2);
  EXPECT_EQ(Stats().capture_seconds, 4);
}

}  // namespace
}  // namespace permafrost::graphcache
