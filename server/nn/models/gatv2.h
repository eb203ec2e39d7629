// GATv2: attention over neighbours and the row itself (nn/ops/gat_attention.h), several heads side by side or, in a
// last layer, their mean. Source: Brody et al. 2022, "How attentive are graph attention networks?", as PyG's GATv2Conv.
#pragma once

#include <string>

#include "nn/models/convolution.h"
#include "nn/ops/gat_attention.h"

namespace permafrost::nn {

// Threads: the device thread.
class Gatv2 final : public Convolution {
 public:
  // Weights are drawn with PyG's initialisers: Glorot; biases of the linear maps as torch.nn.Linear's, the last one 0.
  Gatv2(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                            int64_t rows, at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  // [rows of both linear maps, side by side].
  at::Tensor Project(const NodeModel::InputRows& rows) const override;
  int64_t projected_width() const override { return 2 * width_; }
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  // The edges' rows and those of the self-loops, where it reads them. rows, code: ConvCall's of edges. weights: of the
  // edges in the means that stand for self-loops, as NormOf gives them.
  void AddEdgeRows(const at::Tensor& rows, const at::Tensor& code, const at::Tensor& weights, GatEdges& edges) const;
  // The heads' mean where they are not joined, and the bias.
  at::Tensor Finish(const at::Tensor& attended) const;

  ConvShape shape_;
  int64_t width_;  // of all heads
  Linear left_, right_;
  at::Tensor attention_, bias_, edge_;
};

}  // namespace permafrost::nn
