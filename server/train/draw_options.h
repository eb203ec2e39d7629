// Checks the options by which a job on one large graph draws neighbours. Threads: pure functions.
#pragma once

#include "train/field_checker.h"
#include "train/options.h"

namespace permafrost::train {

// Adds a violation for each of sampler, disjoint, temporal and seed_time, and of what stands against them, that makes
// no sense. Checks nothing for models of small graphs.
void CheckDraws(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::train
