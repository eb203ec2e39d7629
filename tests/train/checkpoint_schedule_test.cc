#include "train/loop/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace permafrost::train {
namespace {

using testing::ElementsAre;

// Returns the seconds at which a run saves. The run takes `seconds` seconds and makes ten steps in each.
std::vector<int64_t> Saves(const spec::CheckpointOptions& options, int64_t seconds, absl::Duration cost) {
  CheckpointSchedule schedule(options);
  std::vector<int64_t> saves;
  absl::Duration now;
  for (int64_t step = 1; now < absl::Seconds(seconds); ++step) {
    now += absl::Milliseconds(100);
    if (!schedule.Due(step, now)) continue;
    saves.push_back(absl::ToInt64Seconds(now));
    schedule.OnSaved(now, now + cost);
    now += cost;
  }
  return saves;
}

TEST(CheckpointSchedule, EarlyInARunThenByTheInterval) {
  EXPECT_THAT(Saves({.every_seconds = 60}, 250, absl::ZeroDuration()), ElementsAre(1, 3, 7, 15, 31, 63, 123, 183, 243));
  EXPECT_THAT(Saves({.every_seconds = 3}, 12, absl::ZeroDuration()), ElementsAre(1, 3, 6, 9, 12));
}

TEST(CheckpointSchedule, ZeroSecondsIsNotByTime) {
  EXPECT_THAT(Saves({.every_seconds = 0}, 100'000, absl::ZeroDuration()), ElementsAre());
  EXPECT_THAT(Saves({.every_steps = 400, .every_seconds = 0}, 100, absl::ZeroDuration()), ElementsAre(40, 80));
}

TEST(CheckpointSchedule, StepsAndTimeBothCount) {
  EXPECT_THAT(Saves({.every_steps = 50, .every_seconds = 60}, 12, absl::ZeroDuration()), ElementsAre(1, 3, 5, 10));
}

TEST(CheckpointSchedule, SlowOnesComeSoSeldomThatTheyTakeTwoPercent) {
  for (const double cost : {0.5, 5.0, 60.0}) {
    const int64_t seconds = 1'000'000;
    const auto saves = static_cast<double>(Saves({.every_seconds = 60}, seconds, absl::Seconds(cost)).size());
    EXPECT_LE((saves - 1) * cost, 0.02 * static_cast<double>(seconds)) << cost;
    EXPECT_GE(saves * cost, 0.0075 * static_cast<double>(seconds)) << cost << ": but they do come";
  }
}

TEST(CheckpointSchedule, AFailedOneIsTriedAgainSoonerThanTheNextAndEverLater) {
  for (const int64_t every_steps : {0, 1}) {
    CheckpointSchedule schedule({.every_steps = every_steps, .every_seconds = 600});
    std::vector<int64_t> tries;
    absl::Duration now;
    for (int64_t step = 1; now < absl::Seconds(250); ++step) {
      now += absl::Milliseconds(500);
      if (now < absl::Seconds(1) || !schedule.Due(step, now)) continue;
      tries.push_back(absl::ToInt64Seconds(now));
      schedule.OnFailed(now);
    }
    EXPECT_THAT(tries, ElementsAre(1, 2, 4, 8, 16, 32, 64, 124, 184, 244)) << every_steps;
    schedule.OnSaved(now, now);
    schedule.OnFailed(now);
    EXPECT_TRUE(schedule.Due(1, now + absl::Seconds(1))) << "a success begins the waits anew";
  }
}

}  // namespace
}  // namespace permafrost::train
