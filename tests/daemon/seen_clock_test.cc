#include "daemon/seen_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

class SeenClockTest : public testing::Test {
 protected:
  // Opens the clock as the next daemon on the same state does.
  void Open() {
    clock_.reset();
    auto opened = SeenClock::Open({.file = dir_.path() / "clock.json",
                                   .read = [this] { return reading_; },
                                   .look_every = absl::Hours(1),
                                   .warn = [this](std::string_view line) { warnings_.emplace_back(line); }});
    ASSERT_TRUE(opened.ok()) << opened.status();
    clock_ = *std::move(opened);
  }
  // Lets time pass with a correct wall clock.
  void Pass(absl::Duration time) {
    reading_.wall += time;
    reading_.uptime += time;
  }
  void Boot(absl::Duration off) {
    reading_.wall += off;
    reading_.uptime = absl::Seconds(5);
    reading_.boot += "'";
  }
  absl::Duration Jump() {
    const auto jump = clock_->jump();
    return jump ? jump->by : absl::ZeroDuration();
  }

  const TempDir dir_;
  ClockReading reading_{.wall = kStart, .uptime = absl::Hours(3), .boot = "a"};
  std::vector<std::string> warnings_;
  std::unique_ptr<SeenClock> clock_;
};

TEST_F(SeenClockTest, TimeThatPassesIsBelievedAtOnce) {
  Open();
  Pass(100 * kDay);
  EXPECT_EQ(Jump(), absl::ZeroDuration());
  EXPECT_EQ(clock_->Now(), kStart + 100 * kDay);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SeenClockTest, AClockThatIsSetForwardIsNotBelievedUntilItIsConfirmed) {
  Open();
  Pass(absl::Hours(1));
  reading_.wall += 400 * kDay;
  EXPECT_EQ(Jump(), 400 * kDay);
  EXPECT_EQ(clock_->Now(), kStart + absl::Hours(1));
  EXPECT_EQ(clock_->Latest(), kStart + absl::Hours(1) + 400 * kDay);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("9600h ahead of the time that was seen to pass"));
  EXPECT_THAT(warnings_[0], HasSubstr("permafrost server confirm-clock"));
  Pass(absl::Hours(2));
  EXPECT_EQ(clock_->Now(), kStart + absl::Hours(3)) << "what passes goes on to count";

  Open();
  EXPECT_EQ(Jump(), 400 * kDay) << "across a restart";
  EXPECT_EQ(*clock_->Confirm(), 400 * kDay);
  EXPECT_EQ(Jump(), absl::ZeroDuration());
  EXPECT_EQ(clock_->Now(), reading_.wall);
  EXPECT_EQ(*clock_->Confirm(), absl::ZeroDuration()) << "nothing is left to confirm";
  Open();
  EXPECT_EQ(Jump(), absl::ZeroDuration()) << "the confirmation is on disk";
}

TEST_F(SeenClockTest, AClockThatIsSetWhileNoDaemonRunsIsNotBelieved) {
  Open();
  clock_.reset();
  reading_.wall += 400 * kDay;
  reading_.uptime += absl::Minutes(1);
  Open();
  EXPECT_EQ(Jump(), 400 * kDay - absl::Minutes(1));
  EXPECT_EQ(clock_->Now(), kStart + absl::Minutes(1));
}

TEST_F(SeenClockTest, WeeksWithoutADaemonAreSeenUnlessTheMachineWasDownToo) {
  Open();
  clock_.reset();
  Pass(20 * kDay);
  Open();
  EXPECT_EQ(Jump(), absl::ZeroDuration()) << "the machine counted them";
  EXPECT_EQ(clock_->Now(), kStart + 20 * kDay);
  clock_.reset();
  Boot(20 * kDay);
  Open();
  EXPECT_EQ(Jump(), 20 * kDay) << "nobody knows whether they passed";
  EXPECT_EQ(clock_->Now(), kStart + 20 * kDay);
}

TEST_F(SeenClockTest, AShortBootIsBelieved) {
  Open();
  for (int i = 0; i < 10; ++i) {
    clock_.reset();
    Boot(absl::Hours(20));
    Open();
  }
  EXPECT_EQ(Jump(), absl::ZeroDuration()) << "many of them, too";
  EXPECT_EQ(clock_->Now(), kStart + 10 * absl::Hours(20));
}

TEST_F(SeenClockTest, SmallCorrectionsAddUp) {
  Open();
  for (int i = 0; i < 2; ++i) {
    reading_.wall += absl::Hours(12);
    EXPECT_EQ(Jump(), absl::ZeroDuration());
    EXPECT_EQ(clock_->Now(), kStart) << "ages never grow by them";
  }
  reading_.wall += absl::Hours(1);
  EXPECT_EQ(Jump(), absl::Hours(25));
}

TEST_F(SeenClockTest, AClockThatIsSetBackIsNotBelievedAsAnOrderOfTime) {
  Open();
  reading_.wall -= 2 * kDay;
  EXPECT_EQ(Jump(), -2 * kDay);
  EXPECT_EQ(clock_->Now(), kStart - 2 * kDay);
  EXPECT_EQ(clock_->Latest(), kStart) << "what expires does so all the same";
  EXPECT_THAT(warnings_[0], HasSubstr("48h behind the time that was seen to pass"));
  reading_.wall += 2 * kDay;
  EXPECT_EQ(Jump(), absl::ZeroDuration()) << "set right again";
  EXPECT_THAT(warnings_[1], HasSubstr("again what was seen"));
}

TEST_F(SeenClockTest, ARecordThatCannotBeReadIsToldAndMadeAnew) {
  std::ofstream(dir_.path() / "clock.json") << "{\"kind\": 7}";
  Open();
  EXPECT_EQ(Jump(), absl::ZeroDuration());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("clock.json: cannot be read"));
  reading_.wall += 400 * kDay;
  Open();
  EXPECT_EQ(Jump(), 400 * kDay);
}

TEST(ReadClocksTest, TheMachineCountsForward) {
  const ClockReading first = ReadClocks(), second = ReadClocks();
  EXPECT_GT(first.uptime, absl::ZeroDuration());
  EXPECT_GE(second.uptime, first.uptime);
  EXPECT_EQ(first.boot, second.boot);
}

}  // namespace
}  // namespace permafrost
