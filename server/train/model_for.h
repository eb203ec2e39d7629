// Finds the graph-level model that a set of graphs needs, and the encoder that a table of features needs.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/store/graph_set.h"
#include "nn/models/encoder_input.h"
#include "nn/models/graph_model.h"
#include "spec/train_options.h"

namespace permafrost::train {

// Tells an encoder what it must know of features: integers are categories. `table`: "node feature"; a violation of
// `field` says which column has integers that are none.
void AddEncoderInput(std::string_view table, const data::FeatureSummary& features, std::string_view field,
                     Violations& violations, nn::EncoderInput& input);

// Errors: InvalidArgument with violations under `prefix` ("spec.").
absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const spec::TrainOptions& options,
                                                    const data::GraphSetSummary& summary, std::string_view prefix);

}  // namespace permafrost::train
