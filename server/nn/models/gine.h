// GINE for graph-level targets: encoders, message passing with batch norm, pooling, an MLP head.
//   h = sum of embeddings of the categorical node columns (or a linear map of float columns)
//   h = dropout(relu(batch_norm(mlp(h + sum over edges (j, i) of relu(h_j + e_ji)))))      num_layers times
//   prediction = mlp(pool(h))
// Source: Hu et al. 2020, "Strategies for pre-training graph neural networks", as PyG's GINEConv with eps = 0.
// Parameter names are those of the equal PyG module, which stands in client/python/src/permafrost/models/gine.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/graph_model.h"
#include "nn/models/model_cost.h"
#include "nn/ops/gine_layer.h"

namespace permafrost::nn {

// Threads: the device thread. Owns its tensors.
class Gine final : public GraphModel {
 public:
  // Weights drawn on the CPU from `seed` (equal on every device), then moved: PyTorch's defaults for linear layers,
  // Xavier uniform for embeddings as OGB's encoders.
  Gine(const GraphModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const GraphModelOptions& options, const StepRows& rows);

  at::Tensor Forward(const GraphSetBatch& batch, Mode mode) override;
  TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;

 private:
  struct Linear {
    at::Tensor weight, bias;
    at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Encoder {
    std::vector<at::Tensor> embeddings;  // categorical columns, or the one learned vector
    std::optional<Linear> linear;        // float columns
    bool learned_vector = false;
    at::Tensor operator()(const at::Tensor& features, int64_t rows) const;
  };

  Linear AddLinear(const std::string& name, int64_t in, int64_t out);
  Encoder AddEncoder(const std::string& name, const EncoderInput& input);
  at::Tensor Uniform(at::IntArrayRef sizes, double bound);
  GineEdges EdgesOf(const GraphSetBatch& batch) const;

  GraphModelOptions options_;
  uint64_t seed_;
  at::Device device_;
  at::Generator generator_;
  TensorSet tensors_;
  Encoder node_encoder_, edge_encoder_;
  std::vector<GineWeights> layers_;
  Linear head_first_, head_second_;
};

}  // namespace permafrost::nn
