// Converts between the wire and the domain how a job's weights begin and change.
// Threads: pure functions.
#pragma once

#include "base/status.h"
#include "permafrost/v1/job.pb.h"
#include "spec/optimizer.h"
#include "spec/train_options.h"

namespace permafrost::api {

// A field that the wire leaves open stays as it is. Adds violations of `spec.optimizer` and `spec.init_from`.
void ReadOptimizer(const v1::OptimizerSpec& wire, spec::OptimizerOptions& optimizer, Violations& violations);
void OptimizerToWire(const spec::OptimizerOptions& optimizer, v1::OptimizerSpec& wire);
void ReadInitFrom(const v1::InitFrom& wire, spec::InitialWeights& from, Violations& violations);
void InitFromToWire(const spec::InitialWeights& from, v1::InitFrom& wire);

}  // namespace permafrost::api
