// Node2Vec's second-order walks. Source: Grover and Leskovec 2016, section 3.2.
// Threads: safe anywhere, as its reader is one thread's.
#pragma once

#include <cstdint>
#include <span>

#include "data/sampling/adjacency_reads.h"
#include "data/sampling/random_walk.h"

namespace permafrost::data {

// Walks [begin, end) of RandomWalks. A neighbour of the node before is one that an edge from it reaches.
void WalkNode2Vec(AdjacencyReads& reads, std::span<const NodeId> starts, int64_t begin, int64_t end,
                  const WalkOptions& options, std::span<NodeId> out);

}  // namespace permafrost::data
