// Chooses how long to wait before what the machine ended (a full disk, too many open files) is tried again.
// Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace permafrost {

inline constexpr absl::Duration kLongestRetry = absl::Minutes(5);

// `first` after one try, twice as long after each further one in a row, kLongestRetry at most; zero before the first.
inline absl::Duration RetryDelay(absl::Duration first, int tries) {
  if (tries <= 0) return absl::ZeroDuration();
  // Far enough to reach the bound; further would overflow.
  const int doublings = std::min(tries - 1, 30);
  return std::min(first * (std::int64_t{1} << doublings), kLongestRetry);
}

}  // namespace permafrost
