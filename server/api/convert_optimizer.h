// Converts between the wire and the domain how a job's weights begin and change.
// Threads: pure functions.
#pragma once

#include "base/status.h"
#include "nn/options.h"
#include "permafrost/v1/job.pb.h"
#include "train/options.h"

namespace permafrost::api {

// A field that the wire leaves open stays as it is. Adds violations of `spec.optimizer` and `spec.init_from`.
void ReadOptimizer(const v1::OptimizerSpec& wire, nn::OptimizerOptions& optimizer, Violations& violations);
void OptimizerToWire(const nn::OptimizerOptions& optimizer, v1::OptimizerSpec& wire);
void ReadInitFrom(const v1::InitFrom& wire, train::InitialWeights& from, Violations& violations);
void InitFromToWire(const train::InitialWeights& from, v1::InitFrom& wire);

}  // namespace permafrost::api
