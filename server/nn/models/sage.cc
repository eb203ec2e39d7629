#include "nn/models/sage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nn/ops/lowering.h"
#include "nn/ops/segment_max.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;

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

Tensor Sage::Apply(const NodeModel::InputRows& in, const ConvCall& call) const {
  const ConvEdges& edges = call.edges;
  if (AggregatesFirst(in, edges, left_.weight)) {
    return GraphConv(in.dense, edges, at::cat({left_.weight, right_}, 1), left_.bias, {}, call.activation);
  }
  const Tensor own = MultiplyRows(FirstRows(in, edges.offsets.size(0) - 1), right_);
  return GraphConv(MultiplyRows(in, left_.weight), edges, {}, left_.bias, own, call.activation);
}

int64_t Sage::projected_width() const { return std::min(in_, 2 * out_); }

Tensor Sage::Project(const NodeModel::InputRows& rows) const {
  if (ProjectsNothing()) return DenseRows(rows, left_.weight);
  return MultiplyRows(rows, at::cat({left_.weight, right_}));
}

Tensor Sage::Combine(const Tensor& projected, const NodeModel::Chunk& chunk) const {
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

Tensor SageMax::Apply(const NodeModel::InputRows& in, const ConvCall& call) const {
  const Tensor rows = DenseRows(in, left_.weight);
  const Tensor largest = SegmentMax(rows, call.edges.offsets, call.edges.sources, call.edges.transpose);
  return Activate(left_(largest) + LinearRows(rows.narrow(0, 0, largest.size(0)), right_), call.activation);
}

Tensor SageMax::Combine(const Tensor& projected, const NodeModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  return left_(SegmentMax(projected, chunk.offsets, chunk.sources)) + LinearRows(own, right_);
}

}  // namespace permafrost::nn
