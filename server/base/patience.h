// Bounds how long this thread may wait for what another process holds, such as a lock on the database, and whether
// anyone still wants what it waits for.
// Threads: each has its own patience; a Patience is made and destroyed on one thread, the newest first.
#pragma once

#include <functional>

#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost {

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

}  // namespace permafrost
