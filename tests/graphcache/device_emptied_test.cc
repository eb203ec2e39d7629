// A device that compiles each step at its first run, and forgets the compiled steps when its caches are emptied.
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

class DeviceEmptiedTest : public CacheFixture {
 protected:
  DeviceEmptiedTest() {
    for (const int64_t nodes : {10, 30, 60, 90}) plan_.train_schedule.push_back({Padded(nodes), 10});
    plan_.eval_schedule = {{Padded(20), 4}};
    plan_.eval_rungs = {Padded(20)};
    compiler_.warms = true;
  }
  void MakeLadder() {
    Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
    while (!cache_->ready()) ASSERT_EQ(cache_->CaptureNext(0), absl::OkStatus());
    compiler_.Take();
  }
  // Returns the events since the last call, without the drops of replaced executables.
  Events TakeCaptures() {
    Events events = compiler_.Take();
    std::erase_if(events, [](const std::string& e) { return e.starts_with("drop"); });
    return events;
  }
};

TEST_F(DeviceEmptiedTest, WhatIsCapturedAheadIsRunOnceAndWhatAStepCapturesIsNot) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  EXPECT_THAT(Train(10), ElementsAre("capture train 90", "warm train 90", "capture train 30", "warm train 30",
                                     "capture eval 20", "warm eval 20", "pad 30", "replay train 30"));
  Make({.policy = spec::Policy::kAlways});
  compiler_.Take();
  EXPECT_THAT(Train(10), ElementsAre("capture train 10", "pad 10", "replay train 10"));
  Make({.policy = spec::Policy::kClearPerStep});
  compiler_.Take();
  EXPECT_THAT(Train(10), ElementsAre("capture train 10", "pad 10", "replay train 10", "drop train 10"));
}

TEST_F(DeviceEmptiedTest, AWarmUpThatFailsFailsTheStep) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2});
  compiler_.warm_up_status = absl::ResourceExhaustedError("no memory on the device");
  EXPECT_EQ(TryRun(Mode::kTrain, 10).status(), compiler_.warm_up_status);
}

TEST_F(DeviceEmptiedTest, ALadderIsCapturedAgainBeforeTheNextStepAndItsCauseIsNamed) {
  MakeLadder();
  Train(10);
  EXPECT_TRUE(cache_->sealed());
  const ModeStats before = Stats();
  cache_->OnDeviceEmptied();
  EXPECT_FALSE(cache_->ready());
  EXPECT_FALSE(cache_->sealed());
  EXPECT_EQ(cache_->captures_ahead(), 3);
  EXPECT_EQ(Stats().awaiting_recapture, 2);
  while (!cache_->ready()) ASSERT_EQ(cache_->CaptureNext(5), absl::OkStatus());
  EXPECT_THAT(TakeCaptures(), ElementsAre("capture train 90", "warm train 90", "capture train 30", "warm train 30",
                                          "capture eval 20", "warm eval 20"));
  EXPECT_TRUE(cache_->sealed());
  const ModeStats after = Stats();
  EXPECT_EQ(after.awaiting_recapture, 0);
  EXPECT_EQ(after.recaptures, before.recaptures + 2);
  EXPECT_EQ(after.captures_by_cause.of(Cause::kDeviceEmptied), 2);
  EXPECT_EQ(after.frozen_captures, 0) << "nothing that the cache did not hold";
  EXPECT_EQ(after.entries, before.entries);
  EXPECT_EQ(after.entry_bytes, before.entry_bytes);
  EXPECT_THAT(Train(10, 6), ElementsAre("pad 30", "replay train 30")) << "to the shape that it had before";
}

TEST_F(DeviceEmptiedTest, EmptiedTwiceItIsCapturedOnce) {
  MakeLadder();
  cache_->OnDeviceEmptied();
  cache_->OnDeviceEmptied();
  EXPECT_EQ(Stats().awaiting_recapture, 2);
  EXPECT_EQ(cache_->captures_ahead(), 3);
}

TEST_F(DeviceEmptiedTest, FrozenExactShapesAreCapturedAheadOthersWhenTheyAreUsed) {
  Make({.freeze_at = 1});
  Train(10);
  ASSERT_TRUE(cache_->snapshot().frozen);
  cache_->OnDeviceEmptied();
  EXPECT_EQ(cache_->captures_ahead(), static_cast<int64_t>(cache_->entries().size()));
  while (!cache_->ready()) ASSERT_EQ(cache_->CaptureNext(1), absl::OkStatus());
  EXPECT_TRUE(cache_->sealed());

  Make({.policy = spec::Policy::kAlways});
  Train(10);
  Train(12);
  cache_->OnDeviceEmptied();
  EXPECT_EQ(cache_->captures_ahead(), 0) << "of thousands of shapes few will be used soon";
  Train(10, 2);
  EXPECT_EQ(Stats().awaiting_recapture, 1);
}

TEST_F(DeviceEmptiedTest, AStrictCacheBearsIt) {
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2, .strict = true});
  Train(10);
  cache_->OnDeviceEmptied();
  EXPECT_EQ(TryRun(Mode::kTrain, 12, 1).status(), absl::OkStatus());
}

TEST_F(DeviceEmptiedTest, AResumedCacheIsNotSealedUntilEachIsCaptured) {
  MakeLadder();
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make({.shapes = spec::Shapes::kLadder, .rungs = 2}).Restore(snapshot, entries);
  EXPECT_FALSE(cache_->sealed());
  while (!cache_->ready()) ASSERT_EQ(cache_->CaptureNext(1), absl::OkStatus());
  EXPECT_TRUE(cache_->sealed());
  EXPECT_EQ(Stats().captures_by_cause.of(Cause::kDeviceEmptied), 0);
  EXPECT_EQ(Stats().captures_by_cause.of(Cause::kResume), 2);
}

}  // namespace
}  // namespace permafrost::graphcache
