// Functions and classes for elapsed time, which does not depend on the wall clock: waits for events, limits on
// waiting, and delays between retries. The file also has a check for requests to stop. Abseil's timed waits
// (AwaitWithTimeout, WaitForNotificationWithTimeout) end at a time of the wall clock. If that clock is set back by an
// hour, they last an hour longer. So the server uses this file for waits and intervals.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace permafrost {

// Measures the time since its construction or its last restart.
// Threads: several threads may call Elapsed at once. No other call may run during Restart.
class Stopwatch {
 public:
  absl::Duration Elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - start_); }
  void Restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A flag that threads can wait for.
// Threads: all methods are safe anywhere.
class Event {
 public:
  void Set();
  // A waiter must call Reset before it reads the state that the event announces. Otherwise it may miss a change.
  void Reset();
  bool is_set() const;
  void Wait() const;
  // Waits until the event is set, at most for `timeout`; an infinite timeout is the same as Wait. Returns whether the
  // event is set.
  bool WaitFor(absl::Duration timeout) const;

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool set_ = false;
};

// Returns Cancelled once a stop was requested. Long work calls this function to learn whether to end. Threads: safe
// anywhere.
inline absl::Status CheckStop(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

// Bounds how long this thread may wait for something that another process holds, such as a lock on the database. Also
// tells whether anyone still wants the result of this thread's work.
// Threads: each thread has its own patience. A Patience is made and destroyed on one thread, in last-in, first-out
// order.
class Patience {
 public:
  // Until the object is destroyed, this thread may wait for `most` in total, or for less if an enclosing Patience has
  // less left. `wanted` returns whether anyone still wants the result. It is called during waits, and before a change
  // is made. If `wanted` is null, the `wanted` of the enclosing Patience is used.
  explicit Patience(absl::Duration most, std::function<bool()> wanted = nullptr);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Returns `most`, or what is left of this thread's patience if that is less. The result is never negative.
  static absl::Duration Left(absl::Duration most);
  // Returns false if the client of this thread's work has gone, so that the work should be dropped.
  static bool IsWanted();

 private:
  const absl::Duration most_;
  const std::function<bool()> wanted_;
  const Stopwatch watch_;
  const Patience* const around_;
};

// The longest delay before a retry after an error of the machine, such as a full disk or too many open files.
inline constexpr absl::Duration kLongestRetry = absl::Minutes(5);

// Returns the delay after `tries` failures in a row: zero after none, and `first` after one. Each further failure
// doubles the delay, up to kLongestRetry. Threads: pure.
inline absl::Duration RetryDelay(absl::Duration first, int tries) {
  if (tries <= 0) return absl::ZeroDuration();
  // 30 doublings reach the bound; more would overflow.
  const int doublings = std::min(tries - 1, 30);
  return std::min(first * (std::int64_t{1} << doublings), kLongestRetry);
}

}  // namespace permafrost
