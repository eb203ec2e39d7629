#include "nn/models/sage_max.h"

#include <ATen/ATen.h>

#include <cmath>

#include "nn/ops/lowering.h"
#include "nn/ops/segment_max.h"

namespace permafrost::nn {

using at::Tensor;

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
