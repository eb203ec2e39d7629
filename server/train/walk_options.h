// What may be asked for of a job of node2vec. Threads: pure functions.
#pragma once

#include "train/field_checker.h"
#include "train/options.h"

namespace permafrost::train {

// Adds a violation for each value of node2vec that is out of range, and for each option that means nothing to it. Of
// other models, whether they ask for sparse_adam.
void CheckWalks(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::train
