// Random draws for sampling. Stateless: a draw depends only on its key, so that any thread can make any of them.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace permafrost::data {

// Uniform in 0..bound-1 from 64 random bits, by one multiplication (Lemire 2019, without the rejection): a number is
// drawn too often by at most a part of bound / 2^64.
inline uint64_t ScaleBits(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// Uniform in (0, 1), never either end.
inline double OpenUnit(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// Calls put(draw) `count` times with numbers uniform in 0..bound-1. Two of them come from one draw of 64 bits where the
// bound is so small that 32 bits favour none by more than 2^-16 of its share.
template <class Put>
inline void DrawBelow(SplitMix64& random, uint64_t bound, int64_t count, const Put& put) {
  if (bound > (uint64_t{1} << 16)) {
    for (int64_t i = 0; i < count; ++i) put(ScaleBits(random.Next(), bound));
    return;
  }
  int64_t i = 0;
  for (; i + 1 < count; i += 2) {
    const uint64_t bits = random.Next();
    put(((bits >> 32) * bound) >> 32);
    put(((bits & UINT32_MAX) * bound) >> 32);
  }
  if (i < count) put(ScaleBits(random.Next(), bound));
}

}  // namespace permafrost::data
