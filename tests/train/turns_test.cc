#include "train/planning/cache_planner.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace permafrost::train {
namespace {

TEST(TurnsTest, EverySecondRoundIsInReverseOrder) {
  std::string order;
  const auto run = [&order](char name) -> TimedRun {
    return [&order, name] {
      order += name;
      return 1.0;
    };
  };
  const std::vector<TimedRun> runs{run('a'), run('b'), run('c')};
  Turns turns(3);
  ASSERT_EQ(turns.Add(runs, 0), absl::OkStatus());
  EXPECT_EQ(order, "abc") << "one round at least";
  ASSERT_EQ(turns.Add(runs, 4), absl::OkStatus());
  EXPECT_EQ(order, "abccbaabc") << "rounds are counted over all calls";
}

TEST(TurnsTest, TheMedianOfEachRun) {
  const std::vector<double> first{5, 1, 9, 2, 3}, second{40, 10, 20, 30};
  const auto from = [](const std::vector<double>& seconds, size_t& next) -> TimedRun {
    return [&] { return seconds[next++]; };
  };
  Turns odd(1), even(1);
  size_t i = 0, j = 0;
  const std::vector<TimedRun> of_odd{from(first, i)}, of_even{from(second, j)};
  ASSERT_EQ(odd.Add(of_odd, 20), absl::OkStatus());
  ASSERT_EQ(even.Add(of_even, 100), absl::OkStatus());
  EXPECT_EQ(odd.Median(0), 3);
  EXPECT_EQ(even.Median(0), 20);
}

// If one side were timed after the other, a machine that slows down or is busy for a while would reverse the result.
TEST(TurnsTest, WhatSlowsTheMachineSlowsAllRuns) {
  const std::vector<std::function<double(double)>> machines{
      [](double now) { return 1 + now / 10; },                      // slows down steadily
      [](double now) { return now > 20 && now < 60 ? 4.0 : 1.0; },  // busy for a while
      [](double now) { return now > 45 ? 1.0 : 6.0; },              // busy at first
  };
  for (size_t m = 0; m < machines.size(); ++m) {
    double now = 0;
    const auto run = [&](double seconds) -> TimedRun {
      return [&, seconds] {
        const double took = seconds * machines[m](now);
        now += took;
        return took;
      };
    };
    // On an idle machine, the first run takes twice as long as the second.
    const std::vector<TimedRun> runs{run(2), run(1)};
    Turns turns(2);
    ASSERT_EQ(turns.Add(runs, 100), absl::OkStatus());
    EXPECT_GT(turns.Median(0), 1.5 * turns.Median(1)) << m;
    EXPECT_LT(turns.Median(0), 2.7 * turns.Median(1)) << m;
  }
}

TEST(TurnsTest, AnErrorOfARunEndsThem) {
  int after = 0;
  const std::vector<TimedRun> runs{[]() -> absl::StatusOr<double> { return absl::CancelledError("stop"); },
                                   [&after]() -> absl::StatusOr<double> { return ++after; }};
  Turns turns(2);
  EXPECT_EQ(turns.Add(runs, 10), absl::CancelledError("stop"));
  EXPECT_EQ(after, 0);
}

}  // namespace
}  // namespace permafrost::train
