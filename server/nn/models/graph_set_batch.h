// One mini-batch of small graphs on the device, in the padded form: real rows first, then padding.
// Threads: a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

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

}  // namespace permafrost::nn
