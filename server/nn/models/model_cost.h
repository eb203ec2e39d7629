// Sizes of a model and of its training step, as estimated before either exists.
// Threads: values.
#pragma once

#include <vector>

namespace permafrost::nn {

// Rows of one step, without padding.
struct StepRows {
  // [num_layers + 1] rows whose representation is needed at each depth, from the outputs to the inputs, as
  // NodeBlock::row_ends. For a whole graph, and for a batch of small graphs, each is the number of its nodes.
  std::vector<double> nodes;
  double edges = 0;
  double graphs = 0;  // rows that are predicted for
};

// Counts of values (4 bytes each).
struct ModelCost {
  double parameters = 0;
  // Alive together at the worst moment of an eager training step: what the backward pass has saved and what it makes,
  // without the batch itself and the gradients of parameters.
  double activations = 0;
};

}  // namespace permafrost::nn
