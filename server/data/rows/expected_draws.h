// Expects how often neighbour sampling will draw each node: by this a feature cache chooses its rows before anything
// was counted. Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::data {

// The batches of an epoch over `seeds` (distinct rows) that a sample with these fan-outs (NeighborSamplingOptions) puts
// each node into, summed over `sums` [nodes]. A node draws each of its k neighbours with the chance min(1, fan-out /
// k); a node that is drawn several times in one batch counts once, draws being taken for independent. Reads all edges
// once a hop. keep_going is asked now and then. Errors: Cancelled when it says no; DataLoss.
absl::Status AddExpectedDraws(const GraphView& view, std::span<const NodeId> seeds, int64_t batch_size,
                              std::span<const int64_t> fan_outs, const std::function<bool()>& keep_going,
                              std::span<float> sums);

}  // namespace permafrost::data
