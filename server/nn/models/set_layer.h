// A layer of the model of sets of graphs: convolution, norm, ReLU, dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "base/step.h"
#include "nn/models/convolution.h"
#include "nn/models/graph_model.h"
#include "nn/ops/gine_layer.h"

namespace permafrost::nn {

// The tensors that all layers of a batch share.
struct SetGraph {
  // source, target and their index; of GINE also its edges' rows.
  GineEdges edges;
  ConvEdges conv;         // of models but GIN and GINE: the same edges with the messages' norm
  at::Tensor edge_rows;   // of attention, as ConvCall's; undefined: without
  at::Tensor edge_code;   // as ConvCall's
  at::Tensor real_nodes;  // [1] int64
  at::Tensor step;        // [1] int64
  Mode mode = Mode::kTrain;
};

// Threads: the device thread. Its tensors are the model's.
class SetLayer {
 public:
  virtual ~SetLayer() = default;
  // x: [N, hidden]. Returns [N, hidden]; padding rows may be anything finite, and no real row sees them.
  virtual at::Tensor Forward(const at::Tensor& x, const SetGraph& graph) const = 0;
};

// Layer `layer` of such a model, whose masks of dropout follow from `seed`.
std::unique_ptr<SetLayer> MakeSetLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options,
                                       uint64_t seed);
// Returns whether its layers read a row of each edge; so does GINE, which needs one.
bool ReadsEdges(const GraphModelOptions& options);
// The cost of one layer with `nodes` and `edges`.
ConvCost SetLayerCost(const GraphModelOptions& options, double nodes, double edges);

}  // namespace permafrost::nn
