// Random walks over the out-edges of a large graph.
// Equal options and seeds give equal walks on every machine, whatever the number of threads.
// Threads: safe anywhere; up to `threads` OpenMP threads within a call.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "data/sampling/adjacency_reads.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

using spec::WalkOptions;

// out: [starts.size() * length], row-major. A walk that comes to a node without out-edges stays there. Errors:
// InvalidArgument (options, a start that is no row, out's size); DataLoss for a damaged block.
absl::Status RandomWalks(const GraphView& view, std::span<const NodeId> starts, const WalkOptions& options, int threads,
                         std::span<NodeId> out);

// Node2Vec's second-order walks. Source: Grover and Leskovec 2016, section 3.2.
// Threads: safe anywhere, as its reader is one thread's.

// Walks [begin, end) of RandomWalks. A neighbour of the node before is one that an edge from it reaches.
void WalkNode2Vec(AdjacencyReads& reads, std::span<const NodeId> starts, int64_t begin, int64_t end,
                  const WalkOptions& options, std::span<NodeId> out);

}  // namespace permafrost::data
