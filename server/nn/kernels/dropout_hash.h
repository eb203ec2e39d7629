// Decides which values dropout drops: a pure function of (seed, step, layer, row, column).
// The hash is MurmurHash3's finalizer (Appleby), chained over the key, the row and the column.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace permafrost::nn {

inline constexpr uint32_t kDropoutColumnStride = 0x9e3779b9;  // 2^32 / golden ratio
inline constexpr uint32_t kDropoutMix1 = 0x85ebca6b, kDropoutMix2 = 0xc2b2ae35;

constexpr uint32_t DropoutMix(uint32_t h) {
  h ^= h >> 16;
  h *= kDropoutMix1;
  h ^= h >> 13;
  h *= kDropoutMix2;
  h ^= h >> 16;
  return h;
}

// The part that does not change in a job, mixed.
constexpr uint32_t DropoutSeed(int64_t seed, int64_t layer) {
  const auto bits = static_cast<uint64_t>(seed);
  uint32_t key = DropoutMix(static_cast<uint32_t>(bits) ^ kDropoutColumnStride);
  key = DropoutMix(key ^ static_cast<uint32_t>(bits >> 32));
  return DropoutMix(key ^ static_cast<uint32_t>(layer));
}

constexpr uint32_t DropoutKeyOf(uint32_t seed, int64_t step) {
  const auto now = static_cast<uint64_t>(step);
  return DropoutMix(DropoutMix(seed ^ static_cast<uint32_t>(now)) ^ static_cast<uint32_t>(now >> 32));
}

// Hashes below it are dropped.
inline uint32_t DropoutThreshold(double p) { return static_cast<uint32_t>(std::min(std::ldexp(p, 32), 4294967295.0)); }

}  // namespace permafrost::nn
