// What the labels and splits of a set of small graphs must be for a job, and what follows for its model.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "data/store/graph_set.h"
#include "train/options.h"

namespace permafrost::train {

// Outputs of the model a graph: the classes of cross-entropy, else the targets. Adds a violation under `prefix` for
// labels that do not go with the loss and class weights that do not go with the labels.
int64_t OutputsFor(const TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                   Violations& violations);

// Sizes that bound those of the train split: its own, or with folds those of the whole set. Adds a violation for more
// folds than graphs.
const data::SizeStatistics& TrainSizes(const TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
