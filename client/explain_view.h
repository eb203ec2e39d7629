// Text that explains a job's graph cache: causes of captures and misses, audits, and the time of a step by operator.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

// Returns, for example, "757 nodes, 1,630 edges, 33 graphs". With `of_seeds` it ends in "33 seeds".
std::string ShapeText(const v1::BatchShape& shape, bool of_seeds);
// Returns, for example, "4 steps, all equal".
Cell AuditsCell(const v1::GraphCache& cache);
// Makes one row per mode and cause. Returns an empty text if nothing was captured or missed.
std::string RenderCauses(const v1::GraphCache& cache, const RenderStyle& style);
// Makes one row per difference that an audit found. Returns an empty text if there are none.
std::string RenderAuditFailures(const v1::GraphCache& cache, const RenderStyle& style);
// Makes one row per graph break. Returns an empty text if there are none.
std::string RenderGraphBreaks(const v1::GraphCache& cache, const RenderStyle& style);

// Shows graph breaks, captures and misses by cause, audits, and each profile with one row per operator.
std::string RenderExplanation(const v1::ExplainGraphCacheResponse& explanation, const RenderStyle& style);

}  // namespace permafrost::client
