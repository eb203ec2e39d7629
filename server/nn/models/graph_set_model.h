// The model of sets of small graphs: encoders, layers of message passing, pooling, an MLP head.
//   h = encoding of the nodes' features
//   h = dropout(relu(norm(convolution(h)))) (+ h)     num_layers times
//   prediction = mlp(pool(h, or what jumping knowledge makes of all layers))
// With a virtual node, a row of each graph is added to its nodes before each layer, and changes by what the nodes then
// are. Source of that: Gilmer et al. 2017 as OGB's GNN_node_Virtualnode. Parameter names are those of the equal PyG
// module, which stands in client/python/src/permafrost/models/graph_sets.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/encoder.h"
#include "nn/models/graph_model.h"
#include "nn/models/model_cost.h"
#include "nn/models/row_norm.h"
#include "nn/models/set_layer.h"

namespace permafrost::nn {

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
