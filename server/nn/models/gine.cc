#include "nn/models/gine.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/models/gin.h"
#include "nn/ops/edge_sum.h"
#include "nn/ops/lowering.h"
#include "nn/ops/row_chunks.h"

namespace permafrost::nn {

using at::Tensor;

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
// long as the input (nn/ops/edge_sum.h). The plain operators make messages of rows as many as the edges.
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

Tensor Gine::Apply(const NodeModel::InputRows& in, const ConvCall& call) const {
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

Tensor Gine::Combine(const Tensor& projected, const NodeModel::Chunk& chunk) const {
  const Tensor sum = EdgeSum(projected, {.offsets = chunk.offsets,
                                         .sources = chunk.sources,
                                         .transpose = {},
                                         .rows = LinearRows(chunk.edge_features, edge_.weight, edge_.bias),
                                         .code = chunk.edge_code,
                                         .first_row = chunk.first_row});
  return second_(first_(sum).relu());
}

}  // namespace permafrost::nn
