// Graph caches as a server would report them.
#pragma once

#include <vector>

#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

// The cache of job zinc-1 before its first step, under FREEZE with a derived freeze point.
v1::GraphCache NewCache();
// The cache has kept 41 of 97 training shapes.
v1::GraphCache WarmingCache();
// The cache after 100 epochs of ZINC, frozen since step 106.
v1::GraphCache FrozenCache();
// Frozen after its first step: one executable serves all shapes of a mode.
v1::GraphCache DynamicCache();
// The same cache with audits that all found equal bits, with causes, and with a profile of the training step.
v1::ExplainGraphCacheResponse Explanation();
// Two entries: one was used, the other not yet.
std::vector<v1::GraphCacheEntry> SampleEntries();

}  // namespace permafrost::client
