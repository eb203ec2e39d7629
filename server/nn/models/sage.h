// GraphSAGE with the mean aggregator: h_i' = W_l mean over edges (j, i) of h_j + b + W_r h_i.
// Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", as PyG's SAGEConv.
#pragma once

#include <vector>

#include "nn/models/layered_model.h"

namespace permafrost::nn {

// Threads: the device thread. Owns its tensors.
class Sage final : public LayeredModel {
 public:
  // Weights are drawn with PyG's initialisers: uniform +-1/sqrt(in), as torch.nn.Linear.
  Sage(const NodeModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const NodeModelOptions& options, const StepRows& rows) {
    return LayeredModel::Cost(options, rows, /*weights=*/2);
  }

  at::Tensor Project(int64_t layer, const InputRows& rows) override;
  int64_t projected_width(int64_t layer) const override;
  at::Tensor InverseSqrtDegrees(const Chunk& chunk) const override;

 private:
  struct Layer {
    at::Tensor left, bias, right;  // of the neighbours' mean, of the row itself
  };
  // Whether Project hands the input on: where that is narrower than both products side by side.
  bool ProjectsNothing(int64_t layer) const;

  MessageNorm NormOf(const NodeBlock& block) const override;
  at::Tensor Convolve(int64_t layer, const InputRows& in, const ConvEdges& edges,
                      const ConvActivation& activation) const override;
  at::Tensor ConvolveProjected(int64_t layer, const at::Tensor& projected, const Chunk& chunk) const override;

  std::vector<Layer> layers_;
};

}  // namespace permafrost::nn
