// A cache that serves every shape of a mode with one executable.
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DynamicCacheTest : public CacheFixture {
 protected:
  DynamicCacheTest() {
    compiler_.no_dynamic_reason.clear();
    auto_shapes_ = spec::Shapes::kAuto;
  }
  // Returns the entries, such as "every train 90".
  std::vector<std::string> Entries() const {
    std::vector<std::string> out;
    for (const EntryInfo& info : cache_->entries()) {
      out.push_back(EventOf(info.dynamic ? "every" : "one", info.mode, info.shape));
    }
    return out;
  }
};

TEST_F(DynamicCacheTest, WhichOptionsAskForIt) {
  const struct {
    const char* why;
    spec::PolicyOptions options;
    bool want;
  } kCases[] = {
      {"auto under freeze", {.policy = spec::Policy::kFreeze}, true},
      {"auto under freeze with a freeze point", {.policy = spec::Policy::kFreeze, .freeze_at = 9}, true},
      {"auto under always counts shapes", {.policy = spec::Policy::kAlways}, false},
      {"exact", {.policy = spec::Policy::kFreeze, .shapes = spec::Shapes::kExact}, false},
      {"dynamic under always", {.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kDynamic}, true},
      {"never keeps nothing", {.policy = spec::Policy::kNever, .shapes = spec::Shapes::kDynamic}, false},
      {"so does clear per step", {.policy = spec::Policy::kClearPerStep, .shapes = spec::Shapes::kDynamic}, false},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(WantsDynamic(c.options), c.want) << c.why;
    EXPECT_EQ(Make(c.options).of(Mode::kTrain).dynamic, c.want) << c.why;
  }
}

TEST_F(DynamicCacheTest, WhateverAMissMeansItIsCapturedAheadAndAnewAfterAClear) {
  for (const spec::OnMiss on_miss : {spec::OnMiss::kEager, spec::OnMiss::kTransient, spec::OnMiss::kReject}) {
    Make({.on_miss = on_miss});
    EXPECT_THAT(Train(50), ElementsAre("capture every train", "capture every eval", "pad 50", "replay every train 50"));
    Apply(CommandKind::kClear, 1);
    EXPECT_THAT(Train(60, 1),
                ElementsAre("capture every train", "capture every eval", "pad 60", "replay every train 60"));
    EXPECT_EQ(Stats().misses, 0);
  }
}

TEST_F(DynamicCacheTest, FreezesBeforeItsFirstStepWithOneExecutableAMode) {
  Make({});
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 1);
  EXPECT_THAT(Train(50), ElementsAre("capture every train", "capture every eval", "pad 50", "replay every train 50"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Entries(), ElementsAre("every train 90", "every eval 40"));
  EXPECT_THAT(Train(60, 1), ElementsAre("pad 60", "replay every train 60"));
  EXPECT_THAT(Train(20, 2), ElementsAre("pad 20", "replay every train 20"));
  EXPECT_THAT(Eval(31, 3), ElementsAre("pad 31", "replay every eval 31"));
  const ModeStats train = Stats(), eval = Stats(Mode::kEval);
  EXPECT_EQ(train.hits, 3) << "every step is a replay";
  EXPECT_EQ(train.misses, 0);
  EXPECT_EQ(cache_->snapshot().freeze_step, 0);
  EXPECT_EQ(train.padded_hits, 0);
  EXPECT_EQ(train.captures, 1);
  EXPECT_EQ(train.entries, 1);
  EXPECT_EQ(train.capacity, 1);
  EXPECT_EQ(train.entry_bytes, FakeCompiler::kBytes);
  EXPECT_EQ(train.padding_nodes, 3) << "one row a batch";
  EXPECT_EQ(eval.hits, 1);
  EXPECT_EQ(train.rejected_inserts + eval.rejected_inserts, 0);
  EXPECT_EQ(train.oversize_steps, 0);
}

TEST_F(DynamicCacheTest, EvaluationThatComesFirstCapturesBoth) {
  Make({});
  EXPECT_THAT(Eval(31), ElementsAre("capture every train", "capture every eval", "pad 31", "replay every eval 31"));
  EXPECT_THAT(Train(50), ElementsAre("pad 50", "replay every train 50"));
}

TEST_F(DynamicCacheTest, UnderAlwaysItIsOneExecutableToo) {
  Make({.policy = spec::Policy::kAlways, .shapes = spec::Shapes::kDynamic});
  Train(50);
  for (const int nodes : {51, 52, 53, 54}) EXPECT_THAT(Train(nodes), testing::SizeIs(2));
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().entries, 1);
  EXPECT_EQ(Stats().capacity, 1);
}

TEST_F(DynamicCacheTest, ABatchAboveTheCeilingIsServedAndCounted) {
  Make({});
  Train(50);
  EXPECT_THAT(Train(95), ElementsAre("pad 95", "replay every train 95"));
  EXPECT_THAT(Train(96), ElementsAre("pad 96", "replay every train 96"));
  EXPECT_EQ(Stats().oversize_steps, 2);
  EXPECT_EQ(Stats().hits, 3);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("a training batch of (95 nodes, 190 edges, 5 graphs) is larger than")));
}

TEST_F(DynamicCacheTest, MessagesOfOneLargeGraphCountSeeds) {
  of_seeds_ = true;
  Make({});
  Train(50);
  Train(95);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("a training batch of (95 nodes, 190 edges, 5 seeds) is larger than")));
  EXPECT_TRUE(cache_->snapshot().of_seeds);
  Make({});
  cache_->Restore({}, {});
  EXPECT_TRUE(cache_->snapshot().of_seeds) << "a checkpoint of an older version does not say";
}

TEST_F(DynamicCacheTest, DimensionsBelowTwoArePadded) {
  Make({});
  FakeBatch batch(compiler_, {0, 0, 0});
  EXPECT_TRUE(cache_->Run(Mode::kTrain, batch, 0).ok());
  EXPECT_EQ(Stats().padding_nodes, 2);
  EXPECT_EQ(Stats().padding_edges, 2);
  EXPECT_EQ(Stats().padding_graphs, 2);
}

TEST_F(DynamicCacheTest, AStepThatResistsHasALadder) {
  compiler_.resisting = {Mode::kTrain};
  Make({.freeze_at = 9});
  EXPECT_THAT(Train(50),
              ElementsAre("resist train", "capture train 90", "capture every eval", "pad 90", "replay train 90"));
  EXPECT_THAT(warnings_,
              ElementsAre("no executable serves every shape of the training step, and batches are rounded up "
                          "to a ladder of 1 shape: aten::zeros: size[0] is 1, 4, 9, 16 at as many shapes"));
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 1) << "as ladders have it";
  EXPECT_EQ(Stats().graph_breaks, 1);
  EXPECT_FALSE(Stats().broken);
  EXPECT_FALSE(Stats().dynamic);
  EXPECT_EQ(cache_->snapshot().graph_breaks.at(0).op, "aten::zeros");
  // Evaluation has a dynamic executable all the same.
  EXPECT_THAT(Entries(), ElementsAre("one train 90", "every eval 40"));
  EXPECT_THAT(Train(52, 2), ElementsAre("pad 90", "replay train 90"));
  EXPECT_THAT(Eval(7, 2), ElementsAre("pad 7", "replay every eval 7"));
}

TEST_F(DynamicCacheTest, AnEvaluationThatResistsHasItsRungs) {
  compiler_.resisting = {Mode::kEval};
  Make({});
  EXPECT_THAT(Train(50), ElementsAre("capture every train", "resist eval", "capture eval 40", "capture eval 20",
                                     "pad 50", "replay every train 50"));
  EXPECT_THAT(Eval(31, 1), ElementsAre("pad 40", "replay eval 40"));
}

TEST_F(DynamicCacheTest, AStepThatCannotBeCapturedAtAllRunsEager) {
  compiler_.breaks = {{Mode::kTrain, "aten::item"}};
  Make({});
  EXPECT_THAT(Train(50),
              ElementsAre("resist train", "break train 90", "capture every eval", "pad 50", "eager train 50"));
  EXPECT_THAT(Train(51, 1), ElementsAre("pad 51", "eager train 51"));
  EXPECT_EQ(Stats().graph_breaks, 1) << "one step that cannot be captured is one break, however it was tried";
  EXPECT_THAT(cache_->snapshot().graph_breaks, ElementsAre(testing::Field(&GraphBreak::op, "aten::item")));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("runs eager")));
}

TEST_F(DynamicCacheTest, AFailedCaptureFailsTheStep) {
  compiler_.fail_captures = {Mode::kTrain};
  Make({});
  EXPECT_EQ(TryRun(Mode::kTrain, 50).status().code(), absl::StatusCode::kResourceExhausted);
  compiler_.fail_captures.clear();
  compiler_.Take();
  EXPECT_THAT(Train(50), Contains("replay every train 50"));
}

TEST_F(DynamicCacheTest, WhereThereIsNoneThereIsALadder) {
  compiler_.no_dynamic_reason = "the device records nothing";
  Make({});
  EXPECT_THAT(Train(50),
              ElementsAre("capture train 90", "capture eval 40", "capture eval 20", "pad 90", "replay train 90"));
  EXPECT_THAT(infos_, testing::Not(Contains(HasSubstr("records nothing")))) << "nobody asked";
  infos_.clear();
  Make({.shapes = spec::Shapes::kDynamic});
  EXPECT_THAT(infos_, Contains("there are no dynamic executables for this job: the device records nothing"));
  EXPECT_EQ(Stats().rungs, 1);
}

// ---- Commands

TEST_F(DynamicCacheTest, AThawKeepsTheExecutablesAndAFreezeHasThem) {
  Make({});
  Train(50);
  EXPECT_THAT(Apply(CommandKind::kThaw, 1), IsEmpty());
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(70, 1), ElementsAre("pad 70", "replay every train 70"));
  EXPECT_THAT(Apply(CommandKind::kFreeze, 2), IsEmpty());
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(DynamicCacheTest, AFreezeBeforeTheFirstStepCapturesBoth) {
  Make({});
  EXPECT_THAT(Apply(CommandKind::kFreeze), IsEmpty());
  EXPECT_THAT(Train(50), ElementsAre("capture every train", "capture every eval", "pad 50", "replay every train 50"));
  EXPECT_EQ(Stats().hits, 1);
}

TEST_F(DynamicCacheTest, AClearMakesThemAnewAndTriesAgainWhatResisted) {
  compiler_.resisting = {Mode::kEval};
  Make({});
  Train(50);
  compiler_.resisting.clear();
  EXPECT_THAT(Apply(CommandKind::kClear, 1), testing::Each(testing::StartsWith("drop")));
  EXPECT_THAT(Train(50), ElementsAre("capture every train", "capture every eval", "pad 50", "replay every train 50"));
  EXPECT_THAT(Entries(), ElementsAre("every train 90", "every eval 40"));
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(DynamicCacheTest, APolicyThatCountsShapesDropsThem) {
  Make({});
  Train(50);
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 1, {.policy = spec::Policy::kAlways}),
              testing::UnorderedElementsAre("drop train 0", "drop eval 0"));
  EXPECT_EQ(Stats().entries, 0);
  EXPECT_EQ(Stats().entry_bytes, 0);
  EXPECT_THAT(Train(50, 1), ElementsAre("capture train 50", "pad 50", "replay train 50"));
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 2, {.policy = spec::Policy::kFreeze}), ElementsAre("drop train 50"));
  EXPECT_THAT(Train(51, 2), Contains("capture every train"));
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 3, {.shapes = spec::Shapes::kExact}), testing::SizeIs(2));
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(51, 3), ElementsAre("capture train 51", "pad 51", "replay train 51"));
}

// ---- Resumes

TEST_F(DynamicCacheTest, AResumeCapturesAgainBeforeItsFirstStep) {
  Make({});
  Train(50);
  Train(60, 1);
  const Snapshot snapshot = *SnapshotFromJson(ToJson(cache_->snapshot()));
  const std::vector<EntryInfo> entries = *EntriesFromJson(ToJson(cache_->entries()));
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_EQ(Stats().awaiting_recapture, 1);
  EXPECT_THAT(Train(70, 2),
              ElementsAre("capture every train", "capture every eval", "pad 70", "replay every train 70"));
  EXPECT_EQ(Stats().recaptures, 1);
  EXPECT_EQ(Stats().hits, 3);
  EXPECT_THAT(Eval(33, 2), ElementsAre("pad 33", "replay every eval 33"));
}

// The job resumes with other replicas, so its share of a batch is larger.
TEST_F(DynamicCacheTest, AResumeHasRoomForTheBatchesThatComeNow) {
  Make({});
  Train(50);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  plan_.train_ceiling = Padded(200);
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_THAT(Train(150, 1), Contains("replay every train 150"));
  EXPECT_EQ(Stats().oversize_steps, 0);
  Train(250, 2);
  EXPECT_EQ(Stats().oversize_steps, 1);
}

TEST_F(DynamicCacheTest, WhatCannotBeCapturedAgainRunsEagerAtTheSameShapes) {
  Make({});
  Train(50);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  compiler_.resisting = {Mode::kTrain};
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_THAT(Train(70, 1), ElementsAre("resist train", "capture every eval", "pad 70", "eager train 70"));
  EXPECT_THAT(Train(71, 2), ElementsAre("pad 71", "eager train 71"));
}

// The checkpoint's batches were padded to the shapes of executables. Later batches must be padded in the same way.
TEST_F(DynamicCacheTest, ACheckpointOfAVersionWithoutThemGoesOnExactly) {
  compiler_.no_dynamic_reason = "none";
  Make({.freeze_at = 1, .shapes = spec::Shapes::kExact});
  Train(50);
  Snapshot snapshot = cache_->snapshot();
  snapshot.options.shapes = spec::Shapes::kAuto;
  const std::vector<EntryInfo> entries = cache_->entries();
  compiler_.no_dynamic_reason.clear();
  Make({.freeze_at = 1});
  cache_->Restore(snapshot, entries);
  EXPECT_THAT(Train(60, 1), ElementsAre("capture train 90", "pad 90", "replay train 90"));
}

TEST_F(DynamicCacheTest, ADeviceWithoutThemDropsThoseOfACheckpoint) {
  Make({});
  Train(50);
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  compiler_.no_dynamic_reason = "none";
  Make({});
  cache_->Restore(snapshot, entries);
  EXPECT_EQ(Stats().entries, 0);
  EXPECT_FALSE(Stats().dynamic);
  EXPECT_THAT(Train(50, 1), Contains("replay train 90"));
}

}  // namespace
}  // namespace permafrost::graphcache
