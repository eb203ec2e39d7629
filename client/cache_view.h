// Text about graph caches, for people.
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

// Returns, for example, "freeze after 97 training shapes, on a miss: pad". `derived_freeze_at` is the value of a
// derived freeze point, or 0 if it is not known.
std::string PolicyText(const v1::GraphCachePolicy& policy, int64_t derived_freeze_at = 0);
// Returns, for example, "130 executables, 14.2 MB".
std::string CacheSizeText(const v1::GraphCache& cache);

CacheSnapshot ToSnapshot(const v1::GraphCache& cache);

// Shows everything: policy, freeze, memory, graph breaks and, for each mode, the outcomes of its steps.
std::string RenderCache(const v1::GraphCache& cache, const ViewTime& time, const RenderStyle& style);
// Makes one row per executable.
std::string RenderCacheEntries(const std::vector<v1::GraphCacheEntry>& entries, const ViewTime& time,
                               const RenderStyle& style);

}  // namespace permafrost::client
