#include <ATen/ATen.h>

#include "nn/ops/gine_layer.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
using at::Tensor;

Tensor SumGineMessages(const Tensor& x, const GineEdges& edges) {
  Tensor messages = SelectRows(x, edges.source);
  if (edges.rows.defined()) {
    messages = ReluRows(messages + (edges.code.defined() ? SelectRows(edges.rows, edges.code) : edges.rows));
  }
  return AddRows(x, edges.target, messages);
}

namespace {

Tensor Product(const Tensor& x, const GineEdges& edges, const GineWeights& w) {
  return LinearRows(ReluRows(LinearRows(SumGineMessages(x, edges), w.w1, w.b1)), w.w2, w.b2);
}

}  // namespace

Tensor GineLayerPlain(const Tensor& x, const GineEdges& edges, const Tensor& real_rows, const GineWeights& w,
                      const GineDropout& dropout, const BatchNormOptions& norm) {
  const Tensor y = MaskedBatchNormRelu(Product(x, edges, w), real_rows, w.norm_weight, w.norm_bias, w.running_mean,
                                       w.running_var, norm);
  CountNormBatch(w.batches_tracked, real_rows);
  return Dropout(y, dropout.step, dropout.key, dropout.p);
}

Tensor GineLayerEvalPlain(const Tensor& x, const GineEdges& edges, const GineWeights& w, const BatchNormOptions& norm) {
  return BatchNormReluEval(Product(x, edges, w), w.norm_weight, w.norm_bias, w.running_mean, w.running_var, norm);
}

}  // namespace permafrost::nn
