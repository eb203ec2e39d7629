// GraphSAGE with the mean or the max aggregator: h_i' = W_l mean over edges (j, i) of h_j + b + W_r h_i, or the
// elementwise max in the place of the mean, 0 without edges.
// Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", as PyG's SAGEConv(aggr="mean") and
// SAGEConv(aggr="max").

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "nn/models/convolution.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// GraphSAGE with the mean of neighbours. Threads: the device thread.
class Sage final : public Convolution {
 public:
  // Draws weights with PyG's initialisers: uniform +-1/sqrt(in), as torch.nn.Linear.
  Sage(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  // This, or what the shape's aggregation asks for.
  static std::unique_ptr<Convolution> Make(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override;
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  // Returns true if Project passes the input on as it is, because the input is no wider than both products side by
  // side.
  bool ProjectsNothing() const { return in_ <= 2 * out_; }

  int64_t in_, out_;
  Linear left_;   // of the neighbours' mean
  Tensor right_;  // of the row itself
};

// GraphSAGE with the max of neighbours. Threads: the device thread.
class SageMax final : public Convolution {
 public:
  // Weights are drawn, and named, as Sage's.
  SageMax(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  // Rows go as they are: their largest values come before any product.
  Tensor Project(const LayerWiseModel::InputRows& rows) const override { return DenseRows(rows, left_.weight); }
  int64_t projected_width() const override { return in_; }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear left_;   // of the neighbours' largest values
  Tensor right_;  // of the row itself
};

Sage::Sage(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : in_(shape.in),
      out_(shape.out),
      left_(weights.MakeLinear(name + ".lin_l", in_, out_)),
      right_(weights.Uniform(name + ".lin_r.weight", {out_, in_}, 1 / std::sqrt(static_cast<double>(in_)))) {}

std::unique_ptr<Convolution> Sage::Make(WeightMaker& weights, const std::string& name, const ConvShape& shape) {
  if (shape.aggregation == spec::Aggregation::kMax) return std::make_unique<SageMax>(weights, name, shape);
  return std::make_unique<Sage>(weights, name, shape);
}

ConvCost Sage::Cost(const ConvShape& shape, const ConvRows& rows) {
  return shape.aggregation == spec::Aggregation::kMax ? SageMax::Cost(shape, rows)
                                                      : GraphConvCost(shape, rows, /*weights=*/2);
}

MessageNorm Sage::NormOf(const Tensor& offsets, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                         int64_t /*rows*/, at::ScalarType type, bool /*edge_rows*/) {
  return {.weights = {}, .self = {}, .scale = MeanScale(offsets, type)};
}

Tensor Sage::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const ConvEdges& edges = call.edges;
  if (AggregatesFirst(in, edges, left_.weight)) {
    return GraphConv(in.dense, edges, at::cat({left_.weight, right_}, 1), left_.bias, {}, call.activation);
  }
  const Tensor own = MultiplyRows(FirstRows(in, edges.offsets.size(0) - 1), right_);
  return GraphConv(MultiplyRows(in, left_.weight), edges, {}, left_.bias, own, call.activation);
}

int64_t Sage::projected_width() const { return std::min(in_, 2 * out_); }

Tensor Sage::Project(const LayerWiseModel::InputRows& rows) const {
  if (ProjectsNothing()) return DenseRows(rows, left_.weight);
  return MultiplyRows(rows, at::cat({left_.weight, right_}));
}

Tensor Sage::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  if (ProjectsNothing()) {
    const Tensor mean = SegmentMean(projected, chunk.offsets, chunk.sources);
    return left_(mean) + LinearRows(own, right_);
  }
  const Tensor mean = SegmentMean(projected.narrow(1, 0, out_), chunk.offsets, chunk.sources);
  return mean + own.narrow(1, out_, out_) + left_.bias;
}

SageMax::SageMax(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : in_(shape.in),
      left_(weights.MakeLinear(name + ".lin_l", in_, shape.out)),
      right_(weights.Uniform(name + ".lin_r.weight", {shape.out, in_}, 1 / std::sqrt(static_cast<double>(in_)))) {}

// Autograd saves the rows, their largest values and the output; while it runs back, gradients of all three and the
// shares of equal ones are there. The plain operators gather a row for each edge as well.
ConvCost SageMax::Cost(const ConvShape& shape, const ConvRows& rows) {
  const auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  return {.parameters = 2 * in * out + out,
          .saved = rows.sources * in + rows.targets * (in + out),
          .backward = rows.targets * (2 * in + 2 * out) + (rows.first ? 0 : 2 * rows.sources * in) + 2 * in * out};
}

Tensor SageMax::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const Tensor rows = DenseRows(in, left_.weight);
  const Tensor largest = SegmentMax(rows, call.edges.offsets, call.edges.sources, call.edges.transpose);
  return Activate(left_(largest) + LinearRows(rows.narrow(0, 0, largest.size(0)), right_), call.activation);
}

Tensor SageMax::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  return left_(SegmentMax(projected, chunk.offsets, chunk.sources)) + LinearRows(own, right_);
}

}  // namespace

const ConvolutionKind kSageConvolution{.architecture = spec::Architecture::kSage,
                                       .make = &Sage::Make,
                                       .norm = &Sage::NormOf,
                                       .inverse_sqrt_degrees = nullptr,
                                       .cost = &Sage::Cost};

}  // namespace permafrost::nn
