// GCN: h_i' = W sum over edges (j, i) and the self-loop (i, i) of w_ji / sqrt(d_j d_i) h_j + b, where d is the degree
// with the self-loop. Source: Kipf and Welling 2017, "Semi-supervised classification with graph convolutional
// networks", as PyG's GCNConv: a self-loop that is there keeps its weight, the others get 1.
#pragma once

#include <vector>

#include "nn/models/layered_model.h"

namespace permafrost::nn {

// Threads: the device thread. Owns its tensors.
class Gcn final : public LayeredModel {
 public:
  // Weights are drawn with PyG's initialisers: Glorot, bias 0.
  Gcn(const NodeModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const NodeModelOptions& options, const StepRows& rows) {
    return LayeredModel::Cost(options, rows, /*weights=*/1);
  }

  at::Tensor Project(int64_t layer, const InputRows& rows) override;
  int64_t projected_width(int64_t layer) const override;
  at::Tensor InverseSqrtDegrees(const Chunk& chunk) const override;

 private:
  struct Layer {
    at::Tensor weight, bias;
  };
  // Whether Project hands the input on: where that is narrower than the product.
  bool ProjectsNothing(int64_t layer) const;

  MessageNorm NormOf(const NodeBlock& block) const override;
  at::Tensor Convolve(int64_t layer, const InputRows& in, const ConvEdges& edges,
                      const ConvActivation& activation) const override;
  at::Tensor ConvolveProjected(int64_t layer, const at::Tensor& projected, const Chunk& chunk) const override;

  std::vector<Layer> layers_;
};

}  // namespace permafrost::nn
