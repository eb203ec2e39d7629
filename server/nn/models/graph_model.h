// Graph-level models: one prediction for each graph of a batch of small graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/step.h"
#include "nn/models/encoder_input.h"
#include "nn/models/graph_set_batch.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

struct GraphModelOptions {
  spec::ModelOptions model;
  EncoderInput node, edge;
  int64_t num_targets = 1;  // outputs a graph: targets, or classes of cross-entropy
};

// Threads: the device thread. Owns its tensors.
class GraphModel {
 public:
  virtual ~GraphModel() = default;
  // Returns [padded graphs, num_targets]. kTrain also updates what the model keeps beside its parameters, such as
  // running statistics.
  virtual at::Tensor Forward(const GraphSetBatch& batch, Mode mode) = 0;
  virtual TensorSet& tensors() = 0;
  // For `__metadata__` of the weights file: what is needed to build the equal module, as JSON.
  virtual std::string Describe() const = 0;
};

}  // namespace permafrost::nn
