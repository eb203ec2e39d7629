// GCN: h_i' = W sum over edges (j, i) and the self-loop (i, i) of w_ji / sqrt(d_j d_i) h_j + b, where d is the degree
// with the self-loop. Source: Kipf and Welling 2017, "Semi-supervised classification with graph convolutional
// networks", as PyG's GCNConv: a self-loop that is there keeps its weight, the others get 1.
#pragma once

#include <algorithm>
#include <string>

#include "nn/models/convolution.h"

namespace permafrost::nn {

// Threads: the device thread.
class Gcn final : public Convolution {
 public:
  // Weights are drawn with PyG's initialisers: Glorot, bias 0.
  Gcn(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                            int64_t rows, at::ScalarType type, bool edge_rows);
  static at::Tensor InverseSqrtDegrees(const NodeModel::Chunk& chunk, at::ScalarType type);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows) {
    return GraphConvCost(shape, rows, /*weights=*/1);
  }

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  at::Tensor Project(const NodeModel::InputRows& rows) const override;
  int64_t projected_width() const override { return std::min(in_, out_); }
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  // Returns whether Project hands the input on: where that is narrower than the product.
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  at::Tensor bias_, weight_;
};

}  // namespace permafrost::nn
