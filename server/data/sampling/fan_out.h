// The number of neighbours that a hop of sampling draws.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spec/sampling.h"

namespace permafrost::data {

// The most edges that a hop draws of one node with `degree` in-edges: all of them for kAllNeighbors; with replacement
// `fan_out`, however few there are to draw from; without, no more than there are. Drawing by weight may give fewer,
// since an edge of weight 0 is never drawn. fan_out: IsFanOut.
constexpr uint64_t MaxDrawn(uint64_t degree, int64_t fan_out, bool replace) {
  if (degree == 0 || fan_out == spec::kAllNeighbors) return degree;
  return replace ? static_cast<uint64_t>(fan_out) : std::min(degree, static_cast<uint64_t>(fan_out));
}

}  // namespace permafrost::data
