// Which graph-level model a set of graphs needs, and which encoder a table of features.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/store/graph_set.h"
#include "nn/models/encoder_input.h"
#include "nn/models/graph_model.h"
#include "train/options.h"

namespace permafrost::train {

// What an encoder must know of features: integers are categories. `table`: "node feature"; a violation of `field` says
// which column has integers that are none.
void AddEncoderInput(std::string_view table, const data::FeatureSummary& features, std::string_view field,
                     Violations& violations, nn::EncoderInput& input);

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const TrainOptions& options, const data::GraphSetSummary& summary,
                                                    std::string_view prefix);

}  // namespace permafrost::train
