// GIN, and GINE of one large graph, whose messages read the rows of edges.
//   GIN:  h_i' = mlp(h_i + sum over edges (j, i) of h_j)
//   GINE: h_i' = mlp(h_i + sum over edges (j, i) of relu(h_j + lin(e_ji)))
// Sources: Xu et al. 2019, "How powerful are graph neural networks?", as PyG's GINConv with eps = 0; Hu et al. 2020,
// "Strategies for pre-training graph neural networks", as PyG's GINEConv(edge_dim=...) with eps = 0.

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "nn/models/convolution.h"
#include "nn/ops/chunks.h"
#include "nn/ops/gine_layer.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Threads: the device thread.
class Gin final : public Convolution {
 public:
  // The MLP has one hidden layer as wide as the output. Weights are drawn as torch.nn.Linear's.
  Gin(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override { return std::min(in_, out_); }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  Linear first_, second_;
};

// Threads: the device thread.
class Gine final : public Convolution {
 public:
  // The MLP is Gin's, as its names are; `lin` maps a row of an edge to the channels of a node. Weights are drawn as
  // torch.nn.Linear's.
  Gine(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  // Rows go as they are: ReLU comes before any product.
  Tensor Project(const LayerWiseModel::InputRows& rows) const override { return DenseRows(rows, first_.weight); }
  int64_t projected_width() const override { return in_; }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear first_, second_, edge_;
};

Gin::Gin(WeightMaker& weights, const std::string& name, const ConvShape& shape) : in_(shape.in), out_(shape.out) {
  const GinNames names = GinNamesOf(shape);
  // GINConv keeps eps as a buffer when it is not trained; it is 0 and takes no part in the sum.
  weights.Buffer(name + ".eps", {1}, 0);
  first_ = weights.MakeLinear(name + names.first, in_, out_);
  second_ = weights.MakeLinear(name + names.second, out_, out_);
}

MessageNorm Gin::NormOf(const Tensor& offsets, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                        int64_t /*rows*/, at::ScalarType type, bool /*edge_rows*/) {
  return {.weights = {}, .self = at::ones({offsets.size(0) - 1}, offsets.options().dtype(type)), .scale = {}};
}

ConvCost Gin::Cost(const ConvShape& shape, const ConvRows& rows) {
  ConvCost cost = GraphConvCost(shape, rows, /*weights=*/1);
  ConvShape second = shape;
  second.in = shape.out;
  const ConvCost of_second =
      GraphConvCost(second, {.sources = rows.targets, .targets = rows.targets, .edges = 0, .first = false}, 1);
  cost.parameters += of_second.parameters;
  cost.saved += of_second.saved;
  cost.backward = std::max(cost.backward, of_second.backward) + rows.targets * static_cast<double>(shape.out);
  return cost;
}

Tensor Gin::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  ConvActivation within = call.activation;
  within.relu = true;
  within.p = 0;
  const Tensor hidden = AggregatesFirst(in, call.edges, first_.weight)
                            ? GraphConv(in.dense, call.edges, first_.weight, first_.bias, {}, within)
                            : GraphConv(MultiplyRows(in, first_.weight), call.edges, {}, first_.bias, {}, within);
  return GraphConv(hidden, {}, second_.weight, second_.bias, {}, call.activation);
}

Tensor Gin::Project(const LayerWiseModel::InputRows& rows) const {
  return ProjectsNothing() ? DenseRows(rows, first_.weight) : MultiplyRows(rows, first_.weight);
}

Tensor Gin::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  const Tensor sum = SegmentSum(projected, chunk.offsets, chunk.sources, {}) + own;
  return second_((ProjectsNothing() ? first_(sum) : sum + first_.bias).relu());
}

Gine::Gine(WeightMaker& weights, const std::string& name, const ConvShape& shape) : in_(shape.in) {
  const GinNames names = GinNamesOf(shape);
  // GINEConv keeps eps as a buffer when it is not trained; it is 0 and takes no part in the sum.
  weights.Buffer(name + ".eps", {1}, 0);
  first_ = weights.MakeLinear(name + names.first, in_, shape.out);
  second_ = weights.MakeLinear(name + names.second, shape.out, shape.out);
  edge_ = weights.MakeLinear(name + ".lin", shape.edge_channels, in_);
}

MessageNorm Gine::NormOf(const Tensor& /*offsets*/, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                         int64_t /*rows*/, at::ScalarType /*type*/, bool /*edge_rows*/) {
  return {};
}

// Kept: the edges' rows, the sums and what the MLP makes of them. Back: gradients of all of these, those of the sums as
// long as the input (nn/ops/gine_layer.h). The plain operators make messages of rows as many as the edges.
ConvCost Gine::Cost(const ConvShape& shape, const ConvRows& rows) {
  const auto in = static_cast<double>(shape.in), edge = static_cast<double>(shape.edge_channels);
  ConvShape first = shape, second = shape;
  first.edge_channels = second.edge_channels = 0;
  second.in = shape.out;
  const ConvRows of_rows{.sources = rows.targets, .targets = rows.targets, .edges = 0, .first = false};
  const ConvCost one = GraphConvCost(first, of_rows, 1), two = GraphConvCost(second, of_rows, 1);
  return {
      .parameters = one.parameters + two.parameters + edge * in + in,
      .saved = 2 * rows.edges * in + one.saved + two.saved,
      .backward = std::max(one.backward, two.backward) + rows.edges * in + (rows.first ? 1 : 2) * rows.sources * in};
}

Tensor Gine::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const Tensor x = DenseRows(in, first_.weight);
  const Tensor sum = EdgeSum(x, {.offsets = call.edges.offsets,
                                 .sources = call.edges.sources,
                                 .transpose = call.edges.transpose,
                                 .rows = LinearRows(call.edge_rows, edge_.weight, edge_.bias),
                                 .code = call.edge_code});
  ConvActivation within = call.activation;
  within.relu = true;
  within.p = 0;
  const Tensor hidden = GraphConv(sum, {}, first_.weight, first_.bias, {}, within);
  return GraphConv(hidden, {}, second_.weight, second_.bias, {}, call.activation);
}

Tensor Gine::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor sum = EdgeSum(projected, {.offsets = chunk.offsets,
                                         .sources = chunk.sources,
                                         .transpose = {},
                                         .rows = LinearRows(chunk.edge_features, edge_.weight, edge_.bias),
                                         .code = chunk.edge_code,
                                         .first_row = chunk.first_row});
  return second_(first_(sum).relu());
}

}  // namespace

const ConvolutionKind kGinConvolution{.architecture = spec::Architecture::kGin,
                                      .make = &MakeConvolution<Gin>,
                                      .norm = &Gin::NormOf,
                                      .inverse_sqrt_degrees = nullptr,
                                      .cost = &Gin::Cost};
const ConvolutionKind kGineConvolution{.architecture = spec::Architecture::kGine,
                                       .make = &MakeConvolution<Gine>,
                                       .norm = &Gine::NormOf,
                                       .inverse_sqrt_degrees = nullptr,
                                       .cost = &Gine::Cost};

}  // namespace permafrost::nn
