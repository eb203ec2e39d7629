// Text about plans and censuses of graph caches, for people.
// Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <string>

#include "client/style.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/plan.pb.h"

namespace permafrost::client {

// Returns, for example, "random: 1,000 batches in 10 epochs, ...".
std::string BatchScheduleText(const v1::BatchSchedule& schedule);
// Returns, for example, "freeze at 97, transient" or "always".
std::string CachePolicyText(const v1::GraphCachePolicy& policy, v1::GraphCachePolicy::Shapes shapes, int64_t freeze_at);
// Returns, for example, "exact", "ladder of 8" or "dynamic".
std::string CacheShapesText(const v1::GraphCachePolicy& policy, v1::GraphCachePolicy::Shapes shapes,
                            int64_t executables);

// CachePolicyText and CacheShapesText for a row of a plan.
std::string PlanPolicyText(const v1::GraphCachePlanRow& row, const v1::PlanGraphCacheResponse& plan);
std::string PlanShapesText(const v1::GraphCachePlanRow& row);

// Returns whether `row` only repeats the first row of the plan, which is about the policy that the job asks for.
bool SaysTheSame(const v1::GraphCachePlanRow& row, const v1::PlanGraphCacheResponse& plan);

// Shows the schedule, one row per policy, and the recommendation. `subject` names what is planned, such as "zinc,
// batches of 32".
std::string RenderPlan(const v1::PlanGraphCacheResponse& plan, const std::string& subject, const RenderStyle& style);

// Draws the rows of RenderPlan as SVG. The bars show the predicted times of the training steps and of the captures
// or, without measured times, the rows that padding adds.
std::string DrawPlan(const v1::PlanGraphCacheResponse& plan, const std::string& subject);

// Shows a census of the graph cache of MPS: the schedule, and for each lowering the entries by operator and by
// policy. `subject` names the job that was counted, such as "zinc, batches of 32".
std::string RenderCensus(const v1::CensusGraphCacheResponse& census, const std::string& subject,
                         const RenderStyle& style);

}  // namespace permafrost::client
