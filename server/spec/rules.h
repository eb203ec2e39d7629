// Checks what the rows of options cannot say: fields that have to agree with others. Threads: pure functions.
#pragma once

#include "spec/field_checker.h"
#include "spec/train_options.h"

namespace permafrost::spec {

// Adds a violation for each set of fields that do not go together.
void CheckRules(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::spec
