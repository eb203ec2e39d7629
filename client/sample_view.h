// Samples of a large graph as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

// Counts a hop, then edges or walks: a screenful at most, with a line that says how many more there are.
std::string RenderSample(const v1::SampleDatasetResponse& sample, const RenderStyle& style);

}  // namespace permafrost::client
