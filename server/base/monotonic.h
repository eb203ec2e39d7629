// Time that passes whatever the wall clock says, and how long work goes on by it: what asks it to end, how long it
// waits for others, and when it is tried again. Abseil's timed waits (AwaitWithTimeout, WaitForNotificationWithTimeout)
// end at a time of the wall clock: if it is set back by an hour, they last an hour longer. Waits and intervals use this
// file instead.
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

// Cancelled once a stop is requested, by which a long piece of work is asked to end. Threads: safe anywhere.
inline absl::Status CheckStop(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

// Bounds how long this thread may wait for what another process holds, such as a lock on the database, and whether
// anyone still wants what it waits for.
// Threads: each has its own patience; a Patience is made and destroyed on one thread, the newest first.
class Patience {
 public:
  // Until it is destroyed, this thread waits for `most` in all, or as long as the one around it allows if that is
  // shorter. `wanted` is asked while it waits and before anything is changed; nullptr: as the one around it says.
  explicit Patience(absl::Duration most, std::function<bool()> wanted = nullptr);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // `most`, or what is left of this thread's patience where that is less; never below zero.
  static absl::Duration Left(absl::Duration most);
  // False: the caller has gone, and nothing is to be done for it any more.
  static bool IsWanted();

 private:
  const absl::Duration most_;
  const std::function<bool()> wanted_;
  const Stopwatch watch_;
  const Patience* const around_;
};

// Chooses how long to wait before what the machine ended (a full disk, too many open files) is tried again.
// Threads: pure.
inline constexpr absl::Duration kLongestRetry = absl::Minutes(5);

// `first` after one try, twice as long after each further one in a row, kLongestRetry at most; zero before the first.
inline absl::Duration RetryDelay(absl::Duration first, int tries) {
  if (tries <= 0) return absl::ZeroDuration();
  // Far enough to reach the bound; further would overflow.
  const int doublings = std::min(tries - 1, 30);
  return std::min(first * (std::int64_t{1} << doublings), kLongestRetry);
}

}  // namespace permafrost
