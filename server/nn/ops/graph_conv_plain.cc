#include <ATen/ATen.h>

#include "nn/ops/graph_conv.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

Tensor PlainSum(const Tensor& x, const ConvEdges& edges) {
  Tensor sum = SegmentSum(x, edges.offsets, edges.sources, edges.weights);
  if (edges.self.defined()) sum = at::addcmul(sum, x.narrow(0, 0, sum.size(0)), edges.self.unsqueeze(1));
  return edges.scale.defined() ? sum * edges.scale.unsqueeze(1) : sum;
}

}  // namespace

Tensor GraphConvPlain(const Tensor& x, const ConvEdges& edges, const Tensor& weight, const Tensor& bias,
                      const Tensor& addend, const ConvActivation& activation) {
  Tensor in = edges.offsets.defined() ? PlainSum(x, edges) : x;
  if (weight.defined() && weight.size(1) == 2 * x.size(1)) in = at::cat({in, x.narrow(0, 0, in.size(0))}, 1);
  Tensor y = weight.defined() ? LinearRows(in, weight, bias) : in + bias;
  if (addend.defined()) y = y + addend;
  if (!activation.relu) return y;
  const Tensor& keys = activation.row_keys;
  return Dropout(ReluRows(y), activation.step, activation.key, activation.p,
                 keys.defined() ? keys.narrow(0, 0, y.size(0)) : keys);
}

}  // namespace permafrost::nn
