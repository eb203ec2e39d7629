// Which graph-level model a set of graphs needs, and whether this process can hold it.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/store/graph_set.h"
#include "nn/models/graph_model.h"
#include "train/options.h"
#include "train/run_memory.h"

namespace permafrost::train {

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const TrainOptions& options, const data::GraphSetSummary& summary,
                                                    const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
