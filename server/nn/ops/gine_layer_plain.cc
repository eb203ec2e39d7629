#include <ATen/ATen.h>

#include "nn/ops/gine_layer.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

Tensor Product(const Tensor& x, const GineEdges& edges, const GineWeights& w) {
  const Tensor e = edges.code.defined() ? edges.rows.index_select(0, edges.code) : edges.rows;
  const Tensor messages = (x.index_select(0, edges.source) + e).relu();
  const Tensor sum = x.index_add(0, edges.target, messages);
  return at::addmm(w.b2, at::addmm(w.b1, sum, w.w1.t()).relu(), w.w2.t());
}

}  // namespace

Tensor GineLayerPlain(const Tensor& x, const GineEdges& edges, const Tensor& real_rows, const GineWeights& w,
                      const GineDropout& dropout, const BatchNormOptions& norm) {
  const Tensor y = MaskedBatchNormRelu(Product(x, edges, w), real_rows, w.norm_weight, w.norm_bias, w.running_mean,
                                       w.running_var, norm);
  w.batches_tracked.add_(1);
  return Dropout(y, dropout.step, dropout.key, dropout.p);
}

Tensor GineLayerEvalPlain(const Tensor& x, const GineEdges& edges, const GineWeights& w, const BatchNormOptions& norm) {
  return BatchNormReluEval(Product(x, edges, w), w.norm_weight, w.norm_bias, w.running_mean, w.running_var, norm);
}

}  // namespace permafrost::nn
