// GraphSAGE with the mean or the max aggregator: h_i' = W_l mean over edges (j, i) of h_j + b + W_r h_i, or the
// elementwise max in the place of the mean, 0 without edges.
// Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", as PyG's SAGEConv(aggr="mean") and
// SAGEConv(aggr="max").
#pragma once

#include <memory>
#include <string>

#include "nn/models/convolution.h"

namespace permafrost::nn {

// By the mean. Threads: the device thread.
class Sage final : public Convolution {
 public:
  // Weights are drawn with PyG's initialisers: uniform +-1/sqrt(in), as torch.nn.Linear.
  Sage(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                            int64_t rows, at::ScalarType type, bool edge_rows);
  // This, or what the shape's aggregation asks for.
  static std::unique_ptr<Convolution> Make(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  at::Tensor Project(const NodeModel::InputRows& rows) const override;
  int64_t projected_width() const override;
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  // Returns whether Project hands the input on: where that is narrower than both products side by side.
  bool ProjectsNothing() const { return in_ <= 2 * out_; }

  int64_t in_, out_;
  Linear left_;       // of the neighbours' mean
  at::Tensor right_;  // of the row itself
};

// By the max. Threads: the device thread.
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
