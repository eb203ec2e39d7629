// Graph caches as a server would show them.
#pragma once

#include <vector>

#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

// The cache of job zinc-1 before its first step, under FREEZE with a derived freeze point.
v1::GraphCache NewCache();
// 41 of 97 training shapes kept.
v1::GraphCache WarmingCache();
// After 100 epochs of ZINC, frozen since step 106.
v1::GraphCache FrozenCache();
// Frozen after its first step: one executable serves every shape of a mode.
v1::GraphCache DynamicCache();
// The same cache, with audits all equal, causes, and a profile of the training step.
v1::ExplainGraphCacheResponse Explanation();
// One used, one not yet.
std::vector<v1::GraphCacheEntry> SampleEntries();

}  // namespace permafrost::client
