// Random numbers that are the same on every machine. std::shuffle and the distributions in <random> give other
// numbers with another standard library.
// Threads: a value type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace permafrost {

// SplitMix64. Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
class SplitMix64 {
 public:
  // Streams with different (seed, stream) are independent enough for shuffling.
  SplitMix64(uint64_t seed, uint64_t stream) : state_(Mix(Mix(seed) ^ stream)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  // Returns a uniform number from 0 to bound - 1, without bias. `bound` must be at least 1.
  uint64_t Below(uint64_t bound) {
    const uint64_t mask = bound == 1 ? 0 : ~uint64_t{0} >> std::countl_zero(bound - 1);
    for (;;) {
      const uint64_t draw = Next() & mask;
      if (draw < bound) return draw;
    }
  }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// Fisher-Yates shuffle, from the end.
template <class T>
void Shuffle(std::span<T> values, SplitMix64& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.Below(i)]);
}

}  // namespace permafrost
