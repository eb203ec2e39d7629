#include "nn/models/sage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;

Sage::Sage(const NodeModelOptions& options, uint64_t seed, at::Device device) : LayeredModel(options, seed, device) {
  for (int64_t l = 0; l < num_layers(); ++l) {
    const std::string conv = absl::StrCat("convs.", l);
    const int64_t in = input_width(l), out = output_width(l);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    // One at a time: weights are drawn in this order.
    Layer layer;
    layer.left = AddUniform(conv + ".lin_l.weight", {out, in}, bound);
    layer.bias = AddUniform(conv + ".lin_l.bias", {out}, bound);
    layer.right = AddUniform(conv + ".lin_r.weight", {out, in}, bound);
    layers_.push_back(std::move(layer));
  }
}

MessageNorm Sage::NormOf(const NodeBlock& block) const {
  return {.weights = {}, .self = {}, .scale = MeanScale(block.offsets, layers_[0].left.scalar_type())};
}
Tensor Sage::InverseSqrtDegrees(const Chunk& /*chunk*/) const { return {}; }

Tensor Sage::Convolve(int64_t l, const InputRows& in, const ConvEdges& edges, const ConvActivation& activation) const {
  const Layer& layer = layers_[static_cast<size_t>(l)];
  if (AggregatesFirst(in, edges, layer.left)) {
    return GraphConv(in.dense, edges, at::cat({layer.left, layer.right}, 1), layer.bias, {}, activation);
  }
  const Tensor own = Linear(FirstRows(in, edges.offsets.size(0) - 1), layer.right);
  return GraphConv(Linear(in, layer.left), edges, {}, layer.bias, own, activation);
}

bool Sage::ProjectsNothing(int64_t l) const { return input_width(l) <= 2 * output_width(l); }

int64_t Sage::projected_width(int64_t l) const { return std::min(input_width(l), 2 * output_width(l)); }

Tensor Sage::Project(int64_t l, const InputRows& rows) {
  const Layer& layer = layers_[static_cast<size_t>(l)];
  if (ProjectsNothing(l)) return Dense(rows, layer.left);
  return Linear(rows, at::cat({layer.left, layer.right}));
}

Tensor Sage::ConvolveProjected(int64_t l, const Tensor& projected, const Chunk& chunk) const {
  const Layer& layer = layers_[static_cast<size_t>(l)];
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  if (ProjectsNothing(l)) {
    const Tensor mean = SegmentMean(projected, chunk.offsets, chunk.sources);
    return LinearRows(mean, layer.left, layer.bias) + LinearRows(own, layer.right);
  }
  const int64_t out = output_width(l);
  const Tensor mean = SegmentMean(projected.narrow(1, 0, out), chunk.offsets, chunk.sources);
  return mean + own.narrow(1, out, out) + layer.bias;
}

}  // namespace permafrost::nn
