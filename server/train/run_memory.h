// How much memory a run takes, estimated before it begins: a job that is admitted must fit.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "nn/models/model_cost.h"

namespace permafrost::train {

struct RunMemory {
  nn::ModelCost cost;       // the larger of the training and the evaluation step
  double batch_bytes = 0;   // batches on the host: in the step, made ready, and sampled ahead
  double result_bytes = 0;  // what evaluation keeps
};

// Bytes at the worst moment of the run, which is the capture of a step.
double PeakBytes(const RunMemory& memory);

// Adds a violation of PREFIXmodel where the run takes more than `limit` bytes. `what`: one step's content, as "the
// whole graph in every step".
void CheckFits(const RunMemory& memory, uint64_t limit, std::string_view what, std::string_view prefix,
               Violations& violations);

}  // namespace permafrost::train
