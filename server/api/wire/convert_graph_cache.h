// Converts graph caches, cache plans and censuses between the wire and the domain.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/status.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/plan.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

v1::GraphCache GraphCacheToWire(const JobId& job, const graphcache::Snapshot& snapshot);
v1::ExplainGraphCacheResponse ExplanationToWire(const JobId& job, const graphcache::Snapshot& snapshot);
v1::GraphCacheEntry GraphCacheEntryToWire(const graphcache::EntryInfo& entry);
void ShapeToWire(const BatchShape& shape, v1::BatchShape& wire);
v1::GraphCachePolicy::Shapes ShapesToWire(spec::Shapes shapes);
v1::FreezePointSource FreezePointSourceToWire(graphcache::FreezeSource source);
v1::GraphCachePolicy GraphCachePolicyToWire(const spec::PolicyOptions& options);

// Returns the policy of a job. `options` has the fields that `wire` gives; its other fields come from the server's
// `defaults`. If `wire` gives no freeze_at, and its policy differs from that of `defaults`, freeze_at becomes 0
// (derived). If `wire` gives no strict, and the policy keeps nothing, strict becomes false.
spec::PolicyOptions WithPolicyDefaults(const v1::GraphCachePolicy& wire, const spec::PolicyOptions& defaults,
                                       spec::PolicyOptions options);

// Adds a violation of `policy` if it is missing, and a violation for each enum field with an unknown value.
// graphcache::Check decides whether the update makes sense for the cache.
graphcache::PolicyUpdate PolicyUpdateFromWire(const v1::UpdateGraphCachePolicyRequest& wire, Violations& violations);

v1::PlanGraphCacheResponse CachePlanToWire(const graphcache::CachePlan& plan);

v1::CensusGraphCacheResponse CensusToWire(const graphcache::Census& census);
// Errors: InvalidArgument with a violation of torch_release.
absl::StatusOr<graphcache::TorchRelease> TorchReleaseFromWire(const std::string& release);

}  // namespace permafrost::api
