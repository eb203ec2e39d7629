// A prepared batch as the inputs of a step, and back: one order of tensors for everyone.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "data/batching/batch.h"
#include "device/step_program.h"
#include "nn/models/graph_set_batch.h"

namespace permafrost::train {

// On the CPU the tensors share the memory of the host batch and of `step` (optimizer steps done), which must outlive
// them; elsewhere they are copies.
graphcache::StepInputs MakeInputs(const data::PaddedBatch& host, const data::GraphSetSummary& summary,
                                  const int64_t& step, c10::Device device);

// Returns the part of such inputs that a model takes.
nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs);

}  // namespace permafrost::train
