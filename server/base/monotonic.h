// Time that passes whatever the wall clock says. Abseil's timed waits (AwaitWithTimeout,
// WaitForNotificationWithTimeout) end at a time of the wall clock: if it is set back by an hour, they last an hour
// longer. Waits and intervals use this file instead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace permafrost {

// Time since it was made or restarted.
// Threads: one at a time; Elapsed is safe anywhere beside itself.
class Stopwatch {
 public:
  absl::Duration Elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - start_); }
  void Restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Something that happens and is waited for.
// Threads: all methods are safe anywhere.
class Event {
 public:
  void Set();
  // A waiter resets before it looks at what has come, so that it misses nothing.
  void Reset();
  bool is_set() const;
  void Wait() const;
  // Until it is set, at most for `timeout` (infinite: as Wait). Returns whether it is set.
  bool WaitFor(absl::Duration timeout) const;

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace permafrost
