#include "train/loop/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace permafrost::train {
namespace {

class StragglerWatchTest : public testing::Test {
 protected:
  // Adds ten seconds of steps. In each step, a rank computes for its number of milliseconds, and then waits for the
  // slowest rank.
  std::optional<std::string> Window(const std::vector<double>& milliseconds) {
    ranks_.resize(milliseconds.size());
    now_ += absl::Seconds(10);
    double slowest = 0;
    for (const double of_rank : milliseconds) slowest = std::max(slowest, of_rank);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (r > 0) ranks_[r].address = "lab-" + std::to_string(r) + ":7433";
      ranks_[r].steps += 100;
      ranks_[r].seconds += slowest / 10;
      ranks_[r].exchange_seconds += (slowest - milliseconds[r]) / 10;
    }
    return watch_.Look(ranks_, now_);
  }

  StragglerWatch watch_;
  std::vector<RankProgress> ranks_;
  absl::Duration now_;
};

TEST_F(StragglerWatchTest, NamesTheRankThatTheOthersWaitForOnce) {
  EXPECT_EQ(Window({20, 21, 40}), std::nullopt) << "the first report is where the count begins";
  EXPECT_EQ(Window({20, 21, 40}), std::nullopt);
  EXPECT_EQ(Window({20, 21, 40}), std::nullopt);
  EXPECT_EQ(Window({20, 21, 40}),
            "rank 2 (lab-2:7433) keeps the others waiting: it computes 40 ms a step, and they 20 ms");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Window({20, 21, 40}), std::nullopt);
}

TEST_F(StragglerWatchTest, NamesTheLeaderAsThisDaemon) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Window({90, 30}), std::nullopt);
  EXPECT_EQ(Window({90, 30}),
            "rank 0 (this daemon) keeps the others waiting: it computes 90 ms a step, and they 30 ms");
}

TEST_F(StragglerWatchTest, LeavesOutAMomentAndSmallDifferences) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Window({20, 21, 28}), std::nullopt);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Window({20, 20, i % 3 == 0 ? 20.0 : 60.0}), std::nullopt);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Window({20, i % 2 == 0 ? 60.0 : 20.0, i % 2 == 0 ? 20.0 : 60.0}), std::nullopt);
}

TEST_F(StragglerWatchTest, LeavesOutATimeWithoutSteps) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Window({20, 40}), std::nullopt);
  now_ += absl::Seconds(100);
  EXPECT_EQ(watch_.Look(ranks_, now_), std::nullopt) << "as in a long evaluation";
  EXPECT_NE(Window({20, 40}), std::nullopt);
}

}  // namespace
}  // namespace permafrost::train
