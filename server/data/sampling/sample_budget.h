// Fits the draws of a sample to a bound on its rows and edges. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {

// Adds a violation for each of max_nodes and max_edges that is out of range or does not go with the other options.
void CheckSampleBudget(const NeighborSamplingOptions& options, Violations& violations);

// Returns how many edges each target of a hop may draw, so that all of them draw at most `left`: `fan_out` where that
// is enough for all, else the largest equal number, which may be 0. most: what each target draws at `fan_out`, each >
// 0; it is sorted here.
int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out);

}  // namespace permafrost::data
