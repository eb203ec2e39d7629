// Text about samples of a large graph, and about plans of an epoch's reads from a dataset, for people.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

std::string RenderDatasetPlan(const v1::PlanDatasetResponse& plan, const std::string& dataset,
                              const RenderStyle& style);

// Shows counts per hop, and then edges or walks. Shows at most one screenful, and says how many edges or walks are
// left out.
std::string RenderSample(const v1::SampleDatasetResponse& sample, const RenderStyle& style);

}  // namespace permafrost::client
