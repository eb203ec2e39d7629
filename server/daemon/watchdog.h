// Watches the device thread. If it makes no progress for too long, it hangs in the driver, in a file or in a loop,
// and nothing else would detect that. Threads: the watchdog has its own thread; all methods are thread-safe.
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

// Decides only from the arguments of its calls whether the device thread is stalled. Threads: one.
class StallDetector {
 public:
  // `limit` is how long a busy thread may go without progress. Zero: no limit.
  explicit StallDetector(absl::Duration limit) : limit_(limit) {}

  // Records the thread's activity at `now`, which must come from a monotonic clock. An idle thread counts as making
  // progress.
  void Look(const jobs::DeviceActivity& activity, absl::Duration now);
  bool stalled() const { return limit_ > absl::ZeroDuration() && since_ && *since_ >= limit_; }
  // Time since the last progress; nullopt if the thread is idle.
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
    absl::Duration limit = absl::Minutes(10);     // see StallDetector
    absl::Duration interval = absl::Seconds(1);   // between two checks
    std::function<jobs::DeviceActivity()> read;   // must not wait for a store or a step
    std::function<void(bool healthy)> on_change;  // called on the watchdog's thread
  };
  // Borrows the metrics.
  Watchdog(Options options, telemetry::WatchdogMetrics& metrics);
  ~Watchdog();

  // Returns whether the device thread made progress within the limit, as of the last check. Code must call this
  // before it tells a supervisor that the process is alive.
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
