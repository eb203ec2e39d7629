// Checks what may be asked for of a job's optimizer. Threads: pure functions.
#pragma once

#include "nn/options.h"
#include "train/field_checker.h"

namespace permafrost::train {

// Adds a violation of `optimizer.*` for each value that is out of range, or that means nothing to the algorithm or the
// schedule.
void CheckOptimizerOptions(const nn::OptimizerOptions& o, FieldChecker& check);

}  // namespace permafrost::train
