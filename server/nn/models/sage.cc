#include "nn/models/sage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nn/models/sage_max.h"
#include "nn/ops/lowering.h"
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

}  // namespace permafrost::nn
