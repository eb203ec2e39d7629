// Graph caches as people read them.
// Threads: everything here is pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/job_view.h"
#include "client/progress.h"
#include "client/style.h"
#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

// "freeze after 97 training shapes, on a miss: pad". `derived_freeze_at`: what a derived freeze point came to, 0 where
// that is not known.
std::string PolicyText(const v1::GraphCachePolicy& policy, int64_t derived_freeze_at = 0);
// "130 executables, 14.2 MB".
std::string CacheSizeText(const v1::GraphCache& cache);

CacheSnapshot ToSnapshot(const v1::GraphCache& cache);

// The whole story: policy, freeze, memory, what became of the steps of each mode, graph breaks.
std::string RenderCache(const v1::GraphCache& cache, const ViewTime& time, const RenderStyle& style);
// One row an executable.
std::string RenderCacheEntries(const std::vector<v1::GraphCacheEntry>& entries, const ViewTime& time,
                               const RenderStyle& style);

}  // namespace permafrost::client
