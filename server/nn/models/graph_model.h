// Graph-level models: one prediction for each graph of a batch of small graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/step.h"
#include "nn/models/encoder.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

// One mini-batch of small graphs on the device, in the padded form: real rows first, then padding.
struct GraphSetBatch {
  int64_t padded_graphs = 0;
  // [N, columns] int64 or float32, undefined where the set has no such features.
  at::Tensor node_features;
  at::Tensor edge_features;
  at::Tensor edge_source;    // [E] int64, rows of this batch
  at::Tensor edge_target;    // [E] int64, rising
  at::Tensor graph_of_node;  // [N] int64; padding nodes belong to the last graph
  at::Tensor labels;         // [G, targets] float32, NaN where missing and in padding graphs
  // Tensors, so that one executable serves many batches and steps.
  at::Tensor real_nodes;   // [1] int64: rows that batch norm may see
  at::Tensor real_graphs;  // [1] int64: graphs that the virtual node's batch norm may see
  at::Tensor step;         // [1] int64: optimizer steps done; which masks dropout draws
};

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
