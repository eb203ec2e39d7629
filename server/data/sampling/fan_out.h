// The number of neighbours that a hop of sampling draws: what may be asked for, and what a node can give.
// Threads: pure functions. Includes no other room, so that options are checked by the same bounds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace permafrost::data {

// A hop's fan-out is kAllNeighbors or 1..kMaxFanOut; a sample has 1..kMaxHops hops.
inline constexpr int64_t kAllNeighbors = -1;
inline constexpr int64_t kMaxFanOut = 65'536;
inline constexpr int64_t kMaxHops = 16;

constexpr bool IsFanOut(int64_t fan_out) { return fan_out == kAllNeighbors || (fan_out >= 1 && fan_out <= kMaxFanOut); }

// The most edges that a hop draws of one node with `degree` in-edges: all of them for kAllNeighbors; with replacement
// `fan_out`, however few there are to draw from; without, no more than there are. Drawing by weight may give fewer,
// since an edge of weight 0 is never drawn. fan_out: IsFanOut.
constexpr uint64_t MaxDrawn(uint64_t degree, int64_t fan_out, bool replace) {
  if (degree == 0 || fan_out == kAllNeighbors) return degree;
  return replace ? static_cast<uint64_t>(fan_out) : std::min(degree, static_cast<uint64_t>(fan_out));
}

}  // namespace permafrost::data
