// Commands and resumes. graph_cache_test.cc tests steps.
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GraphCacheCommandTest : public CacheFixture {};

TEST_F(GraphCacheCommandTest, FreezeIsAtOnceAndIdempotent) {
  Make({.policy = spec::Policy::kAlways});
  Train(5, 0);
  EXPECT_THAT(Apply(CommandKind::kFreeze, 1), ElementsAre("capture train 90", "capture eval 20", "capture eval 40"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(cache_->snapshot().freeze_step, 1);
  EXPECT_EQ(Stats().capacity, 2);
  EXPECT_THAT(Apply(CommandKind::kFreeze, 9), IsEmpty());
  EXPECT_EQ(cache_->snapshot().freeze_step, 1);
  EXPECT_THAT(Train(4), ElementsAre("pad 5", "replay train 5"));
  EXPECT_EQ(Stats().frozen_captures, 0);
}

TEST_F(GraphCacheCommandTest, ThawInsertsAgainAndDisarms) {
  Make({.freeze_at = 1});
  Train(5);
  Apply(CommandKind::kThaw, 1);
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_FALSE(cache_->snapshot().armed);
  EXPECT_EQ(Stats().capacity, -1);
  EXPECT_THAT(Train(6), ElementsAre("capture train 6", "pad 6", "replay train 6"));
  EXPECT_FALSE(cache_->snapshot().frozen) << "it does not freeze by itself any more";
  Apply(CommandKind::kFreeze, 2);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheCommandTest, ClearOfAFrozenCacheKeepsItFrozenWithNewCeilings) {
  Make({.freeze_at = 2});
  Train(5);
  Train(6);
  EXPECT_THAT(Apply(CommandKind::kClear, 3),
              ElementsAre("drop train 5", "drop train 6", "drop train 90", "drop eval 20", "drop eval 40",
                          "capture train 90", "capture eval 20", "capture eval 40"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(5), ElementsAre("pad 90", "replay train 90"));
  EXPECT_EQ(Stats().frozen_captures, 0) << "no step made them";
  EXPECT_EQ(Stats().entries, 1);
}

TEST_F(GraphCacheCommandTest, ClearOfAnOpenCacheStartsOver) {
  Make({.freeze_at = 2});
  Train(5);
  EXPECT_THAT(Apply(CommandKind::kClear), ElementsAre("drop train 5"));
  EXPECT_TRUE(cache_->snapshot().armed);
  EXPECT_EQ(Stats().entries, 0);
  EXPECT_EQ(Stats().entry_bytes, 0);
  Train(5);
  EXPECT_FALSE(cache_->snapshot().frozen) << "the first of two again";
  Train(6);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheCommandTest, ClearLeavesADisarmedCacheDisarmed) {
  Make({.freeze_at = 1});
  Apply(CommandKind::kThaw);
  Apply(CommandKind::kClear);
  EXPECT_FALSE(cache_->snapshot().armed);
}

TEST_F(GraphCacheCommandTest, APolicyThatKeepsNothingDropsEverything) {
  for (const spec::Policy policy : {spec::Policy::kNever, spec::Policy::kClearPerStep}) {
    Make({.freeze_at = 1});
    Train(5);
    Apply(CommandKind::kUpdatePolicy, 4, {.policy = policy});
    EXPECT_THAT(Held(), IsEmpty());
    EXPECT_FALSE(cache_->snapshot().frozen);
    EXPECT_EQ(cache_->snapshot().options.policy, policy);
    EXPECT_EQ(Stats().capacity, 0);
  }
}

TEST_F(GraphCacheCommandTest, APolicyThatKeepsThawsAndArmsAgain) {
  Make({.freeze_at = 2});
  Train(5);
  Train(6);
  Apply(CommandKind::kThaw);
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 4, {.freeze_at = 4}), IsEmpty());
  EXPECT_THAT(Held(), ElementsAre("train 5", "train 6", "train 90", "eval 20", "eval 40"));
  EXPECT_FALSE(cache_->snapshot().frozen);
  EXPECT_TRUE(cache_->snapshot().armed);
  EXPECT_EQ(cache_->snapshot().freeze_point.freeze_at, 4);
  Train(7);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheCommandTest, AFreezePointThatIsReachedAlreadyFreezesAtOnce) {
  Make({.policy = spec::Policy::kAlways});
  for (const int64_t nodes : {5, 6, 7}) Train(nodes);
  EXPECT_THAT(Apply(CommandKind::kUpdatePolicy, 3, {.policy = spec::Policy::kFreeze, .freeze_at = 3}),
              ElementsAre("capture train 90", "capture eval 20", "capture eval 40"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(cache_->snapshot().freeze_step, 3);
}

TEST_F(GraphCacheCommandTest, AnnouncesTheFreezePointOfANewPolicy) {
  sizes_ = {};
  plan_.known_train_shapes = 0;
  Make({.policy = spec::Policy::kAlways});
  EXPECT_THAT(warnings_, IsEmpty());
  Apply(CommandKind::kUpdatePolicy, 0, {.policy = spec::Policy::kFreeze});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("never freezes by itself")));
  Apply(CommandKind::kUpdatePolicy, 0, {.freeze_at = 9});
  EXPECT_THAT(infos_, ElementsAre("the graph cache freezes after 9 training shapes"));
}

TEST_F(GraphCacheCommandTest, EachCommandLeavesItsSequenceAndStep) {
  Make({});
  Apply(CommandKind::kThaw, 12);
  EXPECT_EQ(cache_->snapshot().command_sequence, 1);
  EXPECT_EQ(cache_->snapshot().command_step, 12);
}

TEST_F(GraphCacheCommandTest, ACommandThatMakesNoSenseAnyMoreIsLogged) {
  Make({.policy = spec::Policy::kNever});
  Snapshot want = cache_->snapshot();
  Apply(CommandKind::kFreeze, 8);
  want.command_sequence = 1;
  want.command_step = 8;
  EXPECT_EQ(cache_->snapshot(), want);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("command 1 (freeze) changes nothing: policy never keeps nothing")));
}

TEST_F(GraphCacheCommandTest, ErrorsOfTheCompilerAreTheCommands) {
  Make({.policy = spec::Policy::kAlways});
  compiler_.fail_captures = {Mode::kEval};
  EXPECT_TRUE(absl::IsResourceExhausted(cache_->Apply({.sequence = 1, .kind = CommandKind::kFreeze}, 0)));
  EXPECT_FALSE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheCommandTest, ARestoredCacheGoesOnWhereTheOtherStopped) {
  Make({.freeze_at = 3});
  for (const int64_t nodes : {7, 5, 6}) Train(nodes, nodes);
  Train(4);
  Eval(30);
  Apply(CommandKind::kUpdatePolicy, 9, {.on_miss = spec::OnMiss::kEager});
  const Snapshot before = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  ASSERT_TRUE(before.frozen);

  // The policy of the checkpoint applies, not the one that the job began with.
  Make({.freeze_at = 3});
  cache_->Restore(before, entries);
  EXPECT_THAT(compiler_.Take(), IsEmpty()) << "nothing is captured before it is used";
  Snapshot want = before;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) want.of(mode).awaiting_recapture = want.of(mode).entries;
  EXPECT_EQ(cache_->snapshot(), want);
  EXPECT_EQ(cache_->entries(), entries);
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5"));
  EXPECT_THAT(Train(5), ElementsAre("pad 5", "replay train 5"));
  EXPECT_THAT(Train(3), ElementsAre("pad 3", "eager train 3"));
  const ModeStats after = Stats();
  EXPECT_EQ(after.hits, before.of(Mode::kTrain).hits + 2);
  EXPECT_EQ(after.captures, before.of(Mode::kTrain).captures + 1);
  EXPECT_EQ(after.recaptures, 1);
  EXPECT_EQ(after.frozen_captures, 0) << "the cache held it all the time";
  EXPECT_EQ(after.awaiting_recapture, 3);
  EXPECT_EQ(after.entries, 4);
  EXPECT_EQ(after.entry_bytes, before.of(Mode::kTrain).entry_bytes);
  EXPECT_EQ(after.capture_seconds, before.of(Mode::kTrain).capture_seconds + 2);
}

// A batch must be padded to the same executable, whichever executables have been captured again.
TEST_F(GraphCacheCommandTest, ARestoredCachePadsIntoTheEntriesThatItDidBefore) {
  Make({.freeze_at = 3});
  for (const int64_t nodes : {30, 10, 20}) Train(nodes);
  const Snapshot before = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make({.freeze_at = 3});
  cache_->Restore(before, entries);
  EXPECT_THAT(Train(91), ElementsAre("pad 91", "eager train 91"));
  EXPECT_THAT(Train(31), ElementsAre("capture train 90", "pad 90", "replay train 90"));
  EXPECT_THAT(Train(9), ElementsAre("capture train 10", "pad 10", "replay train 10")) << "and not in 90";
  EXPECT_EQ(Stats().padded_hits, before.of(Mode::kTrain).padded_hits + 2);
  Apply(CommandKind::kClear);
  EXPECT_EQ(Stats().awaiting_recapture, 0);
}

// An executable captured before a graph break still serves the batches that fit into it.
TEST_F(GraphCacheCommandTest, EntriesOutliveABreakInAResumedRun) {
  Make({.freeze_at = 3});
  Train(5);
  compiler_.breaks[Mode::kTrain] = "aten::item";
  Train(6);
  Apply(CommandKind::kFreeze, 2);
  EXPECT_THAT(Train(4), ElementsAre("pad 5", "replay train 5"));
  const Snapshot before = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  ASSERT_TRUE(before.of(Mode::kTrain).broken);
  Make({.freeze_at = 3});
  compiler_.breaks.clear();
  cache_->Restore(before, entries);
  EXPECT_THAT(Train(4), ElementsAre("capture train 5", "pad 5", "replay train 5"));
  EXPECT_THAT(Train(6), ElementsAre("pad 6", "eager train 6"));
  EXPECT_EQ(cache_->entries().size(), entries.size());
}

TEST_F(GraphCacheCommandTest, AnEntryThatCannotBeCapturedAgainRunsEagerAtItsShape) {
  Make({.freeze_at = 1});
  Train(5);
  const Snapshot before = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make({.freeze_at = 1});
  compiler_.breaks[Mode::kTrain] = "aten::item";
  cache_->Restore(before, entries);
  EXPECT_THAT(Train(4), ElementsAre("break train 5", "pad 5", "eager train 5"));
  EXPECT_THAT(Train(4), ElementsAre("pad 5", "eager train 5")) << "it is not tried again";
  EXPECT_EQ(Stats().entries, 2);
  EXPECT_EQ(Stats().entry_bytes, FakeCompiler::kBytes) << "of the ceiling";
  EXPECT_EQ(Stats().awaiting_recapture, 1);
  EXPECT_EQ(Stats().graph_breaks, 1);
  EXPECT_EQ(Stats().recaptures, 0);
  EXPECT_EQ(Stats().eager_steps, 2);
  EXPECT_TRUE(cache_->snapshot().frozen);
}

TEST_F(GraphCacheCommandTest, ARecaptureThatFailsFailsTheStepAndMayBeTriedAgain) {
  Make({.freeze_at = 1});
  Train(5);
  const Snapshot before = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make({.freeze_at = 1});
  cache_->Restore(before, entries);
  compiler_.fail_captures = {Mode::kTrain};
  EXPECT_TRUE(absl::IsResourceExhausted(TryRun(Mode::kTrain, 5).status()));
  EXPECT_EQ(Stats().awaiting_recapture, 2);
  compiler_.fail_captures.clear();
  EXPECT_THAT(Train(5), ElementsAre("capture train 5", "pad 5", "replay train 5"));
}

// An undisturbed run never tries a broken step again, so a resumed run must not either.
TEST_F(GraphCacheCommandTest, ABrokenStepStaysBrokenInAResumedRun) {
  Make({.freeze_at = 3});
  compiler_.breaks[Mode::kTrain] = "aten::item";
  Train(5);
  const Snapshot before = cache_->snapshot();
  Make({.freeze_at = 3});
  compiler_.breaks.clear();
  cache_->Restore(before, {});
  EXPECT_THAT(Train(6), ElementsAre("pad 6", "eager train 6"));
  EXPECT_EQ(Stats().graph_breaks, 1);
  Apply(CommandKind::kClear, 2);
  EXPECT_THAT(Train(6), ElementsAre("capture train 6", "pad 6", "replay train 6"));
}

TEST_F(GraphCacheCommandTest, AnotherAnswerToAMissDoesNotThaw) {
  Make({.policy = spec::Policy::kAlways});
  Train(5);
  Apply(CommandKind::kFreeze, 1);
  compiler_.Take();
  Apply(CommandKind::kUpdatePolicy, 2, {.on_miss = spec::OnMiss::kEager});
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Train(6), ElementsAre("pad 6", "eager train 6"));
  Make({.freeze_at = 3});
  Apply(CommandKind::kThaw, 1);
  Apply(CommandKind::kUpdatePolicy, 2, {.on_miss = spec::OnMiss::kTransient});
  EXPECT_FALSE(cache_->snapshot().armed);
}

TEST_F(GraphCacheCommandTest, AFrozenCacheThatIsToPadCapturesWhatItPadsTo) {
  Make({.freeze_at = 1, .on_miss = spec::OnMiss::kTransient});
  Train(5);
  ASSERT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().entries, 1);
  compiler_.Take();
  Apply(CommandKind::kUpdatePolicy, 1, {.on_miss = spec::OnMiss::kPad});
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_EQ(Stats().entries, 2);
  EXPECT_THAT(Train(6), ElementsAre(testing::StartsWith("pad "), testing::StartsWith("replay train ")));
  EXPECT_EQ(Stats().padded_hits, 1);
}

// A client that waits for a command must not take a failed command for a completed one.
TEST_F(GraphCacheCommandTest, ACommandThatFailsIsNotSaidToHaveTakenEffect) {
  Make({.freeze_at = 3});
  Train(5);
  compiler_.fail_captures.insert(Mode::kTrain);
  EXPECT_TRUE(absl::IsResourceExhausted(cache_->Apply({.sequence = 4, .kind = CommandKind::kFreeze}, 1)));
  EXPECT_EQ(cache_->snapshot().command_sequence, 0);
  EXPECT_FALSE(cache_->snapshot().frozen);
}

}  // namespace
}  // namespace permafrost::graphcache
