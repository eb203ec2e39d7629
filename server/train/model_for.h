// Which graph-level model a set of graphs needs.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/store/graph_set.h"
#include "nn/models/graph_model.h"
#include "train/options.h"

namespace permafrost::train {

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const TrainOptions& options, const data::GraphSetSummary& summary,
                                                    std::string_view prefix);

}  // namespace permafrost::train
