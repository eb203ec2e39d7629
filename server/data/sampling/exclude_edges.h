// Takes edges out of a sampled subgraph: those that a batch is to predict must not pass messages.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {

// Pairs of seeds, by their rows in a subgraph: sources[i] and targets[i].
struct SeedPairs {
  std::span<const int64_t> sources, targets;
};

// Removes every edge between the two seeds of a pair, in either direction; of a disjoint subgraph wherever the two
// nodes stand, in any seed's part of it. Rows stay.
void ExcludeEdges(const SeedPairs& pairs, SampledSubgraph& subgraph);

}  // namespace permafrost::data
