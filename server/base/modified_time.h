// Returns when a file was last written to, as fstat tells it. Threads: a pure function.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace permafrost {

// Nanoseconds since the epoch.
inline std::int64_t ModifiedNanoseconds(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

}  // namespace permafrost
