// Why a job's graph cache did what it did, as people read it: causes, audits, and a step's time by operator.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

// "757 nodes, 1,630 edges, 33 graphs"; on one large graph it says "33 seeds".
std::string ShapeText(const v1::BatchShape& shape, bool of_seeds);
// "4 steps, all equal".
Cell AuditsCell(const v1::GraphCache& cache);
// One row a mode and cause; empty where nothing was captured or missed.
std::string RenderCauses(const v1::GraphCache& cache, const RenderStyle& style);
// One row a difference; empty where there is none.
std::string RenderAuditFailures(const v1::GraphCache& cache, const RenderStyle& style);
// One row a graph break; empty where there is none.
std::string RenderGraphBreaks(const v1::GraphCache& cache, const RenderStyle& style);

// Graph breaks, captures and misses by cause, audits, and each profile: a row an operator.
std::string RenderExplanation(const v1::ExplainGraphCacheResponse& explanation, const RenderStyle& style);

}  // namespace permafrost::client
