// Checks the options of a job of node2vec. Threads: pure functions.
#pragma once

#include "train/field_checker.h"
#include "train/options.h"

namespace permafrost::train {

// Adds a violation for each value of node2vec that is out of range, and for each option that means nothing to it. For
// other models it adds one if they ask for sparse_adam.
void CheckWalks(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::train
