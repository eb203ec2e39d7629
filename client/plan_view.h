// Plans and censuses of graph caches as people read them.
// Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <string>

#include "client/style.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/plan.pb.h"

namespace permafrost::client {

// "random: 1,000 batches in 10 epochs, ..."
std::string BatchScheduleText(const v1::BatchSchedule& schedule);
// "freeze at 97, transient", "always".
std::string CachePolicyText(const v1::GraphCachePolicy& policy, v1::GraphCachePolicy::Shapes shapes, int64_t freeze_at);
// "exact", "ladder of 8", "dynamic".
std::string CacheShapesText(const v1::GraphCachePolicy& policy, v1::GraphCachePolicy::Shapes shapes,
                            int64_t executables);

// The same for a row of a plan.
std::string PlanPolicyText(const v1::GraphCachePlanRow& row, const v1::PlanGraphCacheResponse& plan);
std::string PlanShapesText(const v1::GraphCachePlanRow& row);

// Returns whether a row says again what the plan's first one says, which shows the policy that the job asks for.
bool SaysTheSame(const v1::GraphCachePlanRow& row, const v1::PlanGraphCacheResponse& plan);

// The schedule, one row a policy, and the recommendation. `subject`: what is planned, as "zinc, batches of 32".
std::string RenderPlan(const v1::PlanGraphCacheResponse& plan, const std::string& subject, const RenderStyle& style);

// A drawing of the same rows as SVG: predicted time of the training steps and of captures; where nothing was measured,
// rows added by padding.
std::string DrawPlan(const v1::PlanGraphCacheResponse& plan, const std::string& subject);

// A census of the graph cache of MPS: the schedule, and for each lowering the entries by operator and by policy.
// `subject`: what was counted, as "zinc, batches of 32".
std::string RenderCensus(const v1::CensusGraphCacheResponse& census, const std::string& subject,
                         const RenderStyle& style);

}  // namespace permafrost::client
