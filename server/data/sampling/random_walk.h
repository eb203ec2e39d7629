// Random walks over the out-edges of a large graph. Equal options and seeds give equal walks on every machine,
// whatever the number of threads.
// Threads: safe anywhere; a call uses up to `threads` OpenMP threads.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

using spec::WalkOptions;

// Writes the walks to `out`, [starts.size(), length]. A walk that reaches a node without out-edges stays there.
// Errors: InvalidArgument (bad options, a start that is not a row, the size of `out`); DataLoss for a damaged block.
absl::Status RandomWalks(const GraphView& view, std::span<const NodeId> starts, const WalkOptions& options, int threads,
                         std::span<NodeId> out);

}  // namespace permafrost::data
