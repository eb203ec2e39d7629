// Random walks over the out-edges of a large graph.
// Equal options and seeds give equal walks on every machine, whatever the number of threads.
// Threads: safe anywhere; up to `threads` OpenMP threads within a call.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

using spec::WalkOptions;

// out: [starts.size() * length], row-major. A walk that comes to a node without out-edges stays there. Errors:
// InvalidArgument (options, a start that is no row, out's size); DataLoss for a damaged block.
absl::Status RandomWalks(const GraphView& view, std::span<const NodeId> starts, const WalkOptions& options, int threads,
                         std::span<NodeId> out);

}  // namespace permafrost::data
