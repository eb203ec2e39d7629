// Causes of captures and misses, the limit of executables, and strict caches.
#include <string>
#include <vector>

#include "base/status.h"
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class StrictCacheTest : public CacheFixture {
 protected:
  // Makes a cache that is frozen after two training shapes, strict by default.
  void MakeSealed(spec::OnMiss on_miss, bool strict = true) {
    Make({.freeze_at = 2, .on_miss = on_miss, .shapes = spec::Shapes::kExact, .strict = strict});
    Train(5, 0);
    Train(6, 1);
    ASSERT_TRUE(cache_->snapshot().frozen);
  }
  ErrorReason ExpectStrict(Mode mode, int64_t nodes) {
    const ModeStats before = Stats(mode);
    const absl::Status status = TryRun(mode, nodes, 9).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(GetReason(status).reason, "GRAPH_CACHE_STRICT") << status;
    EXPECT_THAT(compiler_.Take(), Not(Contains(HasSubstr("pad")))) << "the step is not run";
    EXPECT_EQ(Stats(mode).misses, before.misses);
    return GetReason(status);
  }
};

TEST_F(StrictCacheTest, ASealedOneBearsReplaysAlone) {
  MakeSealed(spec::OnMiss::kPad);
  Train(5, 2);
  Train(80, 3);  // padded to the ceiling
  const ErrorReason reason = ExpectStrict(Mode::kTrain, 95);
  EXPECT_EQ(reason.metadata.at("cause"), "last-batch") << "the fixture's batches have four graphs of 32";
  EXPECT_EQ(reason.metadata.at("mode"), "train");
  EXPECT_EQ(reason.metadata.at("shape"), "(95 nodes, 190 edges, 5 graphs)");
  ExpectStrict(Mode::kEval, 95);
}

TEST_F(StrictCacheTest, ATransientCaptureIsOne) {
  MakeSealed(spec::OnMiss::kTransient);
  ExpectStrict(Mode::kTrain, 80);
  EXPECT_EQ(Stats().frozen_captures, 0);
}

TEST_F(StrictCacheTest, AnEagerStepIsOne) {
  MakeSealed(spec::OnMiss::kEager);
  ExpectStrict(Mode::kTrain, 80);
  EXPECT_EQ(Stats().eager_steps, 0);
}

TEST_F(StrictCacheTest, WithoutItTheySayWhyAndGoOn) {
  MakeSealed(spec::OnMiss::kEager, /*strict=*/false);
  Train(80, 2);
  EXPECT_EQ(Stats().eager_steps, 1);
}

TEST_F(StrictCacheTest, RecapturesAndCommandsAreNone) {
  MakeSealed(spec::OnMiss::kPad);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make(snapshot.options);
  cache_->Restore(snapshot, entries);
  Train(5, 2);
  EXPECT_EQ(Stats().captures_by_cause.of(Cause::kResume), 1);
  Apply(CommandKind::kClear, 3);
  EXPECT_EQ(Stats().captures_by_cause.of(Cause::kPolicyChange), 1) << "the ceiling, captured anew";
  Train(80, 3);
}

TEST_F(StrictCacheTest, AGraphBreakIsOneBeforeTheSealToo) {
  compiler_.breaks[Mode::kTrain] = "aten::item";
  Make({.shapes = spec::Shapes::kExact, .strict = true});
  const ErrorReason reason = ExpectStrict(Mode::kTrain, 5);
  EXPECT_EQ(reason.metadata.at("cause"), "graph-break");
  EXPECT_EQ(reason.metadata.at("op"), "aten::item");
  EXPECT_EQ(Stats().graph_breaks, 1);
}

TEST_F(StrictCacheTest, AStepThatResistsEveryShapeIsOneWhereThatWasAskedFor) {
  compiler_.no_dynamic_reason.clear();
  compiler_.resisting = {Mode::kTrain};
  Make({.shapes = spec::Shapes::kDynamic, .strict = true});
  EXPECT_EQ(ExpectStrict(Mode::kTrain, 5).metadata.at("op"), "aten::zeros");
  Make({.shapes = spec::Shapes::kAuto, .strict = true});
  EXPECT_THAT(Train(5), Contains("capture train 5")) << "auto means exact shapes then, which seal as well";
}

TEST_F(StrictCacheTest, OneThatNeverSealsSaysSo) {
  Make({.policy = spec::Policy::kAlways, .strict = true});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("strict, and never freezes by itself")));
  Train(5, 0);
  Train(6, 1);
  Apply(CommandKind::kFreeze, 2);
  ExpectStrict(Mode::kTrain, 95);
  warnings_.clear();
  Make({.freeze_at = 2, .strict = true});
  EXPECT_THAT(warnings_, IsEmpty());
}

class CauseCacheTest : public CacheFixture {
 protected:
  CauseCounts Captures(Mode mode = Mode::kTrain) const { return Stats(mode).captures_by_cause; }
  CauseCounts Misses(Mode mode = Mode::kTrain) const { return Stats(mode).misses_by_cause; }
  // Trains a full batch of any sizes.
  void TrainShape(const BatchShape& least_padded, int64_t step) {
    FakeBatch batch(compiler_, {least_padded.nodes - 1, least_padded.edges, 32});
    ASSERT_EQ(cache_->Run(Mode::kTrain, batch, step).status(), absl::OkStatus());
    compiler_.Take();
  }
};

TEST_F(CauseCacheTest, NewSizesAreToldApart) {
  Make({.policy = spec::Policy::kAlways});
  TrainShape({10, 20, 33}, 0);
  TrainShape({11, 20, 33}, 1);
  TrainShape({10, 21, 33}, 2);
  TrainShape({11, 21, 33}, 3);
  TrainShape({11, 21, 33}, 4);
  Train(5, 5);
  Eval(5, 6);
  EXPECT_EQ(Captures().of(Cause::kNewNodes), 2);
  EXPECT_EQ(Captures().of(Cause::kNewEdges), 1);
  EXPECT_EQ(Captures().of(Cause::kNewShape), 1);
  EXPECT_EQ(Captures().of(Cause::kLastBatch), 1);
  EXPECT_EQ(Captures(Mode::kEval).of(Cause::kEvaluation), 1);
  EXPECT_EQ(Misses(), Captures()) << "each capture was a miss, and nothing else was";
  EXPECT_EQ(Misses().Sum(), 5);
}

TEST_F(CauseCacheTest, WhatAFreezeACommandAndAResumeCapture) {
  Make({.freeze_at = 2, .shapes = spec::Shapes::kExact});
  Train(5, 0);
  Train(6, 1);
  EXPECT_EQ(Captures().of(Cause::kFreeze), 1) << "the ceiling";
  EXPECT_EQ(Captures(Mode::kEval).of(Cause::kFreeze), 2) << "the rungs";
  EXPECT_EQ(Misses().of(Cause::kFreeze), 0) << "no step waited for it";
  Apply(CommandKind::kClear, 2);
  Apply(CommandKind::kThaw, 2);
  Train(5, 2);
  EXPECT_EQ(Captures().of(Cause::kPolicyChange), 2) << "the ceiling, and the shape that had been held";
  EXPECT_EQ(Misses().of(Cause::kPolicyChange), 1);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make(snapshot.options);
  cache_->Restore(snapshot, entries);
  Train(5, 3);
  EXPECT_EQ(Captures().of(Cause::kResume), 1);
  EXPECT_EQ(Misses().of(Cause::kResume), 0) << "it is a hit";
}

TEST_F(CauseCacheTest, OneExecutableForEveryShapeIsOfTheFirstStep) {
  compiler_.no_dynamic_reason.clear();
  Make({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kDynamic});
  Train(5, 0);
  Train(6, 1);
  EXPECT_EQ(Captures().of(Cause::kFirstStep), 1);
  Apply(CommandKind::kClear, 2);
  Train(7, 2);
  EXPECT_EQ(Captures().of(Cause::kPolicyChange), 1);
  EXPECT_EQ(Misses().Sum(), 2);
}

TEST_F(CauseCacheTest, EagerStepsHaveCausesToo) {
  Make({.policy = spec::Policy::kNever});
  Train(5, 0);
  EXPECT_EQ(Misses().of(Cause::kPolicy), 1);
  compiler_.breaks[Mode::kTrain] = "aten::item";
  Make({.policy = spec::Policy::kAlways});
  Train(5, 0);
  Train(6, 1);
  EXPECT_EQ(Misses().of(Cause::kGraphBreak), 2);
  EXPECT_EQ(Captures().Sum(), 0);
}

TEST_F(CauseCacheTest, TheFirstOfACauseAreLogged) {
  Make({.policy = spec::Policy::kAlways});
  for (int64_t nodes = 3; nodes < 9; ++nodes) TrainShape({nodes, 20, 33}, nodes);
  EXPECT_THAT(infos_, ElementsAre("captured the training step of (3 nodes, 20 edges, 33 graphs) in 2000 ms: new-nodes",
                                  "captured the training step of (4 nodes, 20 edges, 33 graphs) in 2000 ms: new-nodes",
                                  "captured the training step of (5 nodes, 20 edges, 33 graphs) in 2000 ms: new-nodes; "
                                  "others of this cause are counted"));
}

TEST_F(CauseCacheTest, AtItsLimitACacheKeepsNoMore) {
  Make({.policy = spec::Policy::kAlways, .max_executables = 5});
  for (int64_t nodes = 3; nodes < 6; ++nodes) Train(nodes, nodes);
  EXPECT_THAT(warnings_, IsEmpty());
  Train(8, 6);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("holds 4 of at most 5 executables")));
  Train(9, 7);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("4 of at most 5"), HasSubstr("holds 5 executables, its limit")));
  EXPECT_THAT(Train(6, 8), ElementsAre("pad 8", "replay train 8")) << "the cheapest that holds it";
  EXPECT_THAT(Train(20, 9), ElementsAre("pad 20", "eager train 20"));
  EXPECT_THAT(Train(5, 10), ElementsAre("pad 5", "replay train 5"));
  EXPECT_EQ(Stats().entries, 5);
  EXPECT_EQ(Stats().rejected_inserts, 2);
  EXPECT_EQ(Misses().of(Cause::kLimit), 1);
  EXPECT_EQ(warnings_.size(), 2u) << "each is told once";
  Make({.policy = spec::Policy::kAlways, .max_executables = 0});
  for (int64_t nodes = 3; nodes < 30; ++nodes) Train(nodes, nodes);
  EXPECT_EQ(Stats().entries, 27);
}

TEST_F(CauseCacheTest, TheLimitFreezesACacheThatIsToFreeze) {
  Make({.freeze_at = 50, .shapes = spec::Shapes::kExact, .max_executables = 3});
  for (int64_t nodes = 3; nodes < 6; ++nodes) Train(nodes, nodes);
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Held(), ElementsAre("train 3", "train 90", "eval 40"))
      << "with the ceilings, without which no batch could be padded";
  EXPECT_EQ(Stats().padded_hits, 2);
}

}  // namespace
}  // namespace permafrost::graphcache
