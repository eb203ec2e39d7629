// The steps behind a convolution's output: a norm, ReLU and dropout; and jumping knowledge over the outputs of all
// layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/ops/graph_conv.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

// Tells which rows are real, and so seen by batch norm: the first `count`, [1] int64; or those whose key, [N] int64, is
// at least 0. Neither: all.
struct RealRowsOf {
  at::Tensor count, keys;
};

// ReLU after batch norm by the running statistics, which stay: training where the norm is fixed (TensorSet::Fix).
// x: [N, C]; the rest: [C]. Differentiable in x.
at::Tensor FixedBatchNormRelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& running_mean, const at::Tensor& running_var);

// Threads: the device thread. Its tensors are the model's.
class RowNorm {
 public:
  // kBatch: PyG's BatchNorm (NAME.module.*). kLayer: its LayerNorm with mode "node" (NAME.*). kNone: nothing.
  RowNorm(WeightMaker& weights, const std::string& name, spec::Norm norm, int64_t width);
  static double Parameters(spec::Norm norm, double width) { return norm == spec::Norm::kNone ? 0 : 2 * width; }

  // dropout(relu(norm(x))). x: [N, width]; training: with the batch's own moments, which the running statistics follow;
  // with these, which stay, where the weight is fixed or fewer than two rows are real.
  at::Tensor Activate(const at::Tensor& x, const RealRowsOf& real, bool training,
                      const ConvActivation& activation) const;

 private:
  at::Tensor BatchNormRelu(const at::Tensor& x, const RealRowsOf& real, bool training) const;

  spec::Norm norm_;
  at::Tensor weight_, bias_;
  mutable at::Tensor running_mean_, running_var_, batches_tracked_;  // of kBatch
};

// Jumping knowledge: what predicts is made of the outputs of all layers. Source: Xu et al. 2018, "Representation
// learning on graphs with jumping knowledge networks", as PyG's JumpingKnowledge.
// Returns the channels of what Join returns.
constexpr int64_t JoinedWidth(const spec::ModelOptions& model) {
  return model.hidden_channels * (model.jumping_knowledge == spec::JumpingKnowledge::kCat ? model.num_layers : 1);
}
// outputs: [N, hidden] of each layer; not empty.
at::Tensor Join(const std::vector<at::Tensor>& outputs, spec::JumpingKnowledge how);

}  // namespace permafrost::nn
