// Checks that the CPU's operators can index a step: they index its nodes and edges by 32 bits.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/step.h"
#include "data/store/graph.h"
#include "spec/train_options.h"
#include "train/run_memory.h"

namespace permafrost::train {

// Ok where a job that takes the whole graph in every step can index it. Training gathers gradients by the transposed
// edges; in evaluation only GINE's sum counts edges so. Other devices have no such limit. Errors: InvalidArgument with
// a violation of PREFIXneighbor_sampling.fan_outs.
absl::Status CheckWholeGraphIndex(const spec::TrainOptions& options, const data::GraphSummary& graph,
                                  const MemoryLimits& limits, std::string_view prefix);

// Adds a violation of PREFIXbatch_size where the largest batch of a set cannot be indexed.
void CheckBatchIndex(const BatchShape& largest, const MemoryLimits& limits, std::string_view prefix,
                     Violations& violations);

}  // namespace permafrost::train
