// Checks the options of a job's model. Threads: pure functions.
#pragma once

#include "nn/options.h"
#include "train/field_checker.h"

namespace permafrost::train {

// Adds a violation of `model.*` for each value that is out of range, or that means nothing to the model or its level.
void CheckModelOptions(const nn::ModelOptions& model, FieldChecker& check);

}  // namespace permafrost::train
