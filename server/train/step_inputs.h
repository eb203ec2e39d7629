// A prepared batch as the inputs of a step, and back: one order of tensors for everyone.
#pragma once

#include <cstdint>

#include "data/batching/batch.h"
#include "device/step_program.h"
#include "nn/models/graph_set_batch.h"

namespace permafrost::train {

// The tensors share the memory of the host batch and of `step` (optimizer steps done), which must outlive them.
graphcache::StepInputs MakeInputs(const data::PaddedBatch& host, const data::GraphSetSummary& summary,
                                  const int64_t& step);

// Returns the part of such inputs that a model takes.
nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs);

}  // namespace permafrost::train
