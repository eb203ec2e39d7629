// Asks for memory that is read soon.
// Threads: safe anywhere.
#pragma once

#include <cstdint>

namespace permafrost {

// The line of the cache that `address` is in; whatever it points to, nothing is read.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  // GCC 12 holds that a function that only prefetches has no effect, and leaves out calls of it; this is an effect.
  asm volatile("");
}

// A line for each 64 bytes of `bytes` from `begin` on.
inline void PrefetchLines(const void* begin, uint64_t bytes) {
  const char* const first = static_cast<const char*>(begin);
  for (uint64_t at = 0; at < bytes; at += 64) PrefetchLine(first + at);
}

}  // namespace permafrost
