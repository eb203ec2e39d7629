// How a job on one large graph draws neighbours: what may be asked for together. Threads: pure functions.
#pragma once

#include "train/field_checker.h"
#include "train/options.h"

namespace permafrost::train {

// Adds a violation for each of sampler, disjoint, temporal and seed_time, and of what stands against them, that makes
// no sense. Of models of small graphs nothing.
void CheckDraws(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::train
