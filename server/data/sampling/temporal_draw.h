// Chooses which of one node's edges a hop takes, of those before a time. A draw depends only on the generator that it
// is given. Threads: one at a time (it keeps scratch memory).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "data/sampling/edge_draw.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

class TemporalDraw {
 public:
  // strategy: not kNone.
  TemporalDraw(spec::TemporalSampling strategy, bool replace)
      : strategy_(strategy), draw_(replace, /*weighted=*/false), replace_(replace) {}

  // Writes the places of the edges taken to `places` and returns their number, at most MaxDrawn of the extent.
  // timestamps: of the edges in `extent`. before: only edges with a timestamp below it are taken; nullopt: all may be.
  // kLast takes the `fan_out` latest, and of equally late ones those that stand later in the extent, in the extent's
  // order.
  int64_t Draw(Adjacency::Extent extent, const int64_t* timestamps, std::optional<int64_t> before, int64_t fan_out,
               SplitMix64 random, std::span<uint64_t> places);

 private:
  const spec::TemporalSampling strategy_;
  EdgeDraw draw_;
  const bool replace_;
  std::vector<uint64_t> earlier_;  // places in the extent
};

}  // namespace permafrost::data
