// Sees that the device thread gets on: what has not moved for too long hangs, in the driver, in a file or in a loop,
// and nobody else would notice. Threads: a thread of its own looks; all methods are safe anywhere.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/monotonic.h"
#include "jobs/run_context.h"
#include "telemetry/server_metrics.h"

namespace permafrost {

// Decides by what it is shown, and by nothing else. Threads: one.
class StallDetector {
 public:
  // `limit`: how long a busy thread may go without a sign of progress; zero: for ever.
  explicit StallDetector(absl::Duration limit) : limit_(limit) {}

  // Does what the thread does at `now`, by a clock that nobody sets and that never falls. Idle counts as progress.
  void Look(const jobs::DeviceActivity& activity, absl::Duration now);
  bool stalled() const { return limit_ > absl::ZeroDuration() && since_ && *since_ >= limit_; }
  // nullopt: the thread is idle.
  std::optional<absl::Duration> since_progress() const { return since_; }

 private:
  const absl::Duration limit_;
  uint64_t moves_ = 0;
  absl::Duration moved_ = absl::ZeroDuration();
  std::optional<absl::Duration> since_;
};

class Watchdog {
 public:
  struct Options {
    absl::Duration limit = absl::Minutes(10);     // as StallDetector's
    absl::Duration interval = absl::Seconds(1);   // between two looks
    std::function<jobs::DeviceActivity()> read;   // must not wait for a store or a step
    std::function<void(bool healthy)> on_change;  // on the watchdog's thread
  };
  // Borrows the metrics.
  Watchdog(Options options, telemetry::WatchdogMetrics& metrics);
  ~Watchdog();

  // Returns whether the device thread got on within the limit, as of the last look. A caller that tells a supervisor
  // that the process lives asks this first.
  bool Healthy() const { return healthy_.load(std::memory_order_acquire); }

 private:
  void Run();

  const Options options_;
  telemetry::WatchdogMetrics& metrics_;
  std::atomic<bool> healthy_{true};
  Event stopping_;
  std::thread thread_;
};

}  // namespace permafrost
