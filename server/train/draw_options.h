// How a job on one large graph draws neighbours: what may be asked for together. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/status.h"
#include "train/options.h"

namespace permafrost::train {

// Adds a violation for each of sampler, disjoint, temporal and seed_time, and of what stands against them, that makes
// no sense; fields are named as on the wire, after `prefix` ("spec."). Of models of small graphs nothing.
void CheckDraws(const TrainOptions& options, std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
