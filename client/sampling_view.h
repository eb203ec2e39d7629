// Samples of a large graph, and plans of what an epoch reads of a dataset, as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

std::string RenderDatasetPlan(const v1::PlanDatasetResponse& plan, const std::string& dataset,
                              const RenderStyle& style);

// Counts a hop, then edges or walks: a screenful at most, with a line that says how many more there are.
std::string RenderSample(const v1::SampleDatasetResponse& sample, const RenderStyle& style);

}  // namespace permafrost::client
