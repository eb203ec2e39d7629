// The models of either level. To add one, write its convolution (nn/models/convolution.h) and its torch-free row
// (spec/model.h). Threads: pure functions and constants.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "nn/models/graph_model.h"
#include "nn/models/model_cost.h"
#include "nn/models/node_model.h"
#include "spec/model.h"

namespace permafrost::nn {

// Weights are drawn on the CPU from `seed` (equal on every device), then moved. Throws c10::Error for an architecture
// of the other level.
std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device);
std::unique_ptr<NodeModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device);

// Returns what the model and one training step of it cost. Throws as above.
ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows);
ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows);

}  // namespace permafrost::nn
