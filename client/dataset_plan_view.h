// Plans of what an epoch reads, as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

std::string RenderDatasetPlan(const v1::PlanDatasetResponse& plan, const std::string& dataset,
                              const RenderStyle& style);

}  // namespace permafrost::client
