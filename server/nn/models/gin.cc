#include "nn/models/gin.h"

#include <ATen/ATen.h>

#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;

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

Tensor Gin::Apply(const NodeModel::InputRows& in, const ConvCall& call) const {
  ConvActivation within = call.activation;
  within.relu = true;
  within.p = 0;
  const Tensor hidden = AggregatesFirst(in, call.edges, first_.weight)
                            ? GraphConv(in.dense, call.edges, first_.weight, first_.bias, {}, within)
                            : GraphConv(MultiplyRows(in, first_.weight), call.edges, {}, first_.bias, {}, within);
  return GraphConv(hidden, {}, second_.weight, second_.bias, {}, call.activation);
}

Tensor Gin::Project(const NodeModel::InputRows& rows) const {
  return ProjectsNothing() ? DenseRows(rows, first_.weight) : MultiplyRows(rows, first_.weight);
}

Tensor Gin::Combine(const Tensor& projected, const NodeModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  const Tensor sum = SegmentSum(projected, chunk.offsets, chunk.sources, {}) + own;
  return second_((ProjectsNothing() ? first_(sum) : sum + first_.bias).relu());
}

}  // namespace permafrost::nn
