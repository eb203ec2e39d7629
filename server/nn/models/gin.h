// GIN, and GINE of one large graph, whose messages read the rows of edges.
//   GIN:  h_i' = mlp(h_i + sum over edges (j, i) of h_j)
//   GINE: h_i' = mlp(h_i + sum over edges (j, i) of relu(h_j + lin(e_ji)))
// Sources: Xu et al. 2019, "How powerful are graph neural networks?", as PyG's GINConv with eps = 0; Hu et al. 2020,
// "Strategies for pre-training graph neural networks", as PyG's GINEConv(edge_dim=...) with eps = 0.
#pragma once

#include <algorithm>
#include <string>

#include "nn/models/convolution.h"

namespace permafrost::nn {

// Threads: the device thread.
class Gin final : public Convolution {
 public:
  // The MLP has one hidden layer as wide as the output. Weights are drawn as torch.nn.Linear's.
  Gin(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                            int64_t rows, at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  at::Tensor Project(const NodeModel::InputRows& rows) const override;
  int64_t projected_width() const override { return std::min(in_, out_); }
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  Linear first_, second_;
};

// Names of the MLP's linear maps within a convolution.
struct GinNames {
  const char *first, *second;
};
constexpr GinNames GinNamesOf(const ConvShape& shape) {
  return shape.of_nodes ? GinNames{".nn.lins.0", ".nn.lins.1"} : GinNames{".nn.0", ".nn.2"};
}

// Threads: the device thread.
class Gine final : public Convolution {
 public:
  // The MLP is Gin's, as its names are; `lin` maps a row of an edge to the channels of a node. Weights are drawn as
  // torch.nn.Linear's.
  Gine(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                            int64_t rows, at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  at::Tensor Apply(const NodeModel::InputRows& in, const ConvCall& call) const override;
  // Rows go as they are: ReLU comes before any product.
  at::Tensor Project(const NodeModel::InputRows& rows) const override { return DenseRows(rows, first_.weight); }
  int64_t projected_width() const override { return in_; }
  at::Tensor Combine(const at::Tensor& projected, const NodeModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear first_, second_, edge_;
};

}  // namespace permafrost::nn
