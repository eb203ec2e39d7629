// The model of sets of small graphs: encoders, layers of message passing, pooling, an MLP head.
//   h = encoding of the nodes' features
//   h = dropout(relu(norm(convolution(h)))) (+ h)     num_layers times
//   prediction = mlp(pool(h, or what jumping knowledge makes of all layers))
// With a virtual node, a row of each graph is added to its nodes before each layer, and changes by what the nodes then
// are. Source of that: Gilmer et al. 2017 as OGB's GNN_node_Virtualnode. Parameter names are those of the equal PyG
// module, which stands in client/python/src/permafrost/models/graph_sets.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/step.h"
#include "nn/models/convolution.h"
#include "nn/models/encoder.h"
#include "nn/models/graph_model.h"
#include "nn/models/layer_output.h"
#include "nn/models/model_cost.h"
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

// A layer: convolution, norm, ReLU, dropout. Threads: the device thread. Its tensors are the model's.
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

// Threads: the device thread. Owns its tensors.
class GraphSetModel final : public GraphModel {
 public:
  GraphSetModel(const GraphModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const GraphModelOptions& options, const StepRows& rows);

  at::Tensor Forward(const GraphSetBatch& batch, Mode mode) override;
  TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;

 private:
  // The weights of one layer but the last that make the next row of a graph's virtual node.
  struct VirtualLayer {
    Linear first, second;
    RowNorm first_norm, second_norm;
  };
  SetGraph GraphOf(const GraphSetBatch& batch, Mode mode) const;
  at::Tensor NextVirtual(int64_t layer, const at::Tensor& h, const at::Tensor& of_graphs, const GraphSetBatch& batch,
                         Mode mode) const;

  GraphModelOptions options_;
  uint64_t seed_;
  TensorSet tensors_;
  std::optional<Encoder> node_encoder_, edge_encoder_;
  std::vector<std::unique_ptr<SetLayer>> layers_;
  at::Tensor virtual_row_;  // [1, hidden]
  std::vector<VirtualLayer> virtual_layers_;
  Linear head_first_, head_second_;
};

}  // namespace permafrost::nn
