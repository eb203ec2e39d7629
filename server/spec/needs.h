// Says for which jobs a field means something. Threads: pure functions.
#pragma once

#include <string>

#include "spec/field.h"
#include "spec/train_options.h"

namespace permafrost::spec {

// True if `options` are a job for which a field with this need means something.
bool Holds(Need need, const TrainOptions& options);
// Tells why a field with a need that does not hold is refused: "is given for schedule step; accepted: for plateau".
std::string RefusalOf(Need need, const TrainOptions& options);

}  // namespace permafrost::spec
