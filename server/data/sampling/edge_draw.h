// Chooses which of one node's edges a hop takes. A draw depends only on the generator that it is given.
// Threads: one at a time (it keeps scratch memory).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "data/store/graph.h"

namespace permafrost::data {

class EdgeDraw {
 public:
  EdgeDraw(bool replace, bool weighted) : replace_(replace), weighted_(weighted) {}

  // A node of so many edges at most gives all of them, in their order, without a draw.
  uint64_t MostTakenWhole(int64_t fan_out) const;
  // Draws `fan_out` of the edges with a weight above 0, or all of them where there are no more. Each is as likely as
  // any other. They are drawn without replacement and in no order.
  int64_t DrawEvenly(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
                     std::span<uint64_t> places);
  // Writes the places of the edges drawn to `places` and returns their number, at most MaxDrawn. weights: of the edges
  // in `extent`, where it is weighted; an edge whose weight is 0 is never drawn, though all are asked for.
  int64_t Draw(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
               std::span<uint64_t> places);

 private:
  static int64_t TakeHeavy(Adjacency::Extent extent, const float* weights, std::span<uint64_t> places);
  int64_t DrawDistinct(Adjacency::Extent extent, int64_t fan_out, SplitMix64& random, std::span<uint64_t> places);
  int64_t DrawWeighted(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64& random,
                       std::span<uint64_t> places);
  int64_t DrawWeightedDistinct(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64& random,
                               std::span<uint64_t> places);

  const bool replace_, weighted_;
  std::vector<double> sums_;
  std::vector<uint64_t> chosen_, heavy_;
  std::vector<std::pair<double, uint64_t>> keys_;  // a heap, the least on top
};

}  // namespace permafrost::data
