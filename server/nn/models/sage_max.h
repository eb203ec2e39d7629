// GraphSAGE with the max aggregator: h_i' = W_l max over edges (j, i) of h_j + b + W_r h_i, elementwise; 0 without
// edges. Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", as PyG's
// SAGEConv(aggr="max").
#pragma once

#include <string>

#include "nn/models/convolution.h"

namespace permafrost::nn {

// Threads: the device thread.
class SageMax final : public Convolution {
 public:
  // Weights are drawn, and named, as Sage's.
  SageMax(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  // Rows go as they are: their largest values come before any product.
  at::Tensor Project(const NodeModel::InputRows& rows) const override { return DenseRows(rows, left_.weight); }
  int64_t projected_width() const override { return in_; }
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear left_;       // of the neighbours' largest values
  at::Tensor right_;  // of the row itself
};

}  // namespace permafrost::nn
