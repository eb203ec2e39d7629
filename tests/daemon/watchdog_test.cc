#include "daemon/watchdog.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <mutex>
#include <vector>

#include "metric_values.h"

namespace permafrost {
namespace {

using jobs::DeviceActivity;
using jobs::DevicePhase;

DeviceActivity Doing(DevicePhase phase, uint64_t moves) {
  return {.phase = phase, .job = JobId("a"), .step = 3, .moves = moves};
}

TEST(StallDetector, IsStalledOnceNothingMovesForTheLimit) {
  StallDetector detector(absl::Seconds(10));
  const struct {
    const char* why;
    double now;
    DevicePhase phase;
    uint64_t moves;
    bool stalled;
    double since;  // negative if idle
  } looks[] = {
      {"idle says nothing", 0, DevicePhase::kIdle, 1, false, -1},
      {"idle for long is no stall", 100, DevicePhase::kIdle, 1, false, -1},
      {"the first look at work begins the time, not the idle time before", 101, DevicePhase::kOpening, 1, false, 0},
      {"waits", 110, DevicePhase::kOpening, 1, false, 9},
      {"a step", 111, DevicePhase::kTraining, 2, false, 0},
      {"waits again", 120, DevicePhase::kTraining, 2, false, 9},
      {"hangs", 121, DevicePhase::kTraining, 2, true, 10},
      {"still", 300, DevicePhase::kTraining, 2, true, 189},
      {"gets on", 301, DevicePhase::kTraining, 3, false, 0},
      {"a phase that is entered is a move", 310, DevicePhase::kCheckpoint, 4, false, 0},
      {"a checkpoint that hangs is a stall, too", 320, DevicePhase::kCheckpoint, 4, true, 10},
      {"the end of the job ends it", 321, DevicePhase::kIdle, 5, false, -1},
  };
  for (const auto& look : looks) {
    detector.Look(Doing(look.phase, look.moves), absl::Seconds(look.now));
    EXPECT_EQ(detector.stalled(), look.stalled) << look.why;
    EXPECT_EQ(detector.since_progress() ? absl::ToDoubleSeconds(*detector.since_progress()) : -1, look.since)
        << look.why;
  }
}

TEST(StallDetector, ALimitOfZeroIsNone) {
  StallDetector detector(absl::ZeroDuration());
  detector.Look(Doing(DevicePhase::kTraining, 1), absl::ZeroDuration());
  detector.Look(Doing(DevicePhase::kTraining, 1), absl::Hours(1000));
  EXPECT_FALSE(detector.stalled());
  EXPECT_EQ(detector.since_progress(), absl::Hours(1000));
}

TEST(Watchdog, TellsOfEachChangeOnceAndShowsItInTheMetrics) {
  prometheus::Registry registry;
  telemetry::WatchdogMetrics metrics(registry);
  jobs::DeviceActivityBoard board;
  board.Enter(DevicePhase::kTraining, JobId("a"));
  std::mutex mu;
  std::vector<bool> told;
  Event stalled, recovered;
  const Watchdog watchdog({.limit = absl::Milliseconds(20),
                           .interval = absl::Milliseconds(1),
                           .read = [&] { return board.Read(); },
                           .on_change =
                               [&](bool healthy) {
                                 const std::lock_guard<std::mutex> lock(mu);
                                 told.push_back(healthy);
                                 (healthy ? recovered : stalled).Set();
                               }},
                          metrics);
  stalled.Wait();
  EXPECT_FALSE(watchdog.Healthy());
  EXPECT_EQ(MetricValue(registry, "permafrost_device_thread_stalled", {}), 1);
  EXPECT_GT(MetricValue(registry, "permafrost_device_thread_seconds_since_progress", {}).value_or(0), 0);
  board.Enter(DevicePhase::kIdle);
  recovered.Wait();
  EXPECT_TRUE(watchdog.Healthy());
  EXPECT_EQ(MetricValue(registry, "permafrost_device_thread_stalled", {}), 0);
  EXPECT_EQ(MetricValue(registry, "permafrost_device_thread_seconds_since_progress", {}), std::nullopt) << "it is idle";
  const std::lock_guard<std::mutex> lock(mu);
  EXPECT_EQ(told, (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace permafrost
