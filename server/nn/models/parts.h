// The parts of a model around its convolutions: encoders of feature tables; the steps behind a convolution's output, a
// norm, ReLU and dropout; jumping knowledge over the outputs of all layers; and the decoder of links.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/ops/gine_layer.h"
#include "nn/ops/graph_conv.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

// The form of one feature table, as an encoder sees it.
struct EncoderInput {
  // Categories of each column, values 0..n-1. Empty: float columns.
  std::vector<int64_t> categories;
  // Float columns. 0 with no categories: there are no such features; in a set one learned vector stands for all rows.
  int64_t float_columns = 0;
  bool has_features() const { return float_columns > 0 || !categories.empty(); }
};

// Encodes a feature table: a sum of one embedding a categorical column (as OGB's AtomEncoder), or a linear map of
// float columns, or one learned vector where a set has no such features.
// Threads: the device thread. Its tensors are the model's.
class Encoder {
 public:
  // Embeddings by Xavier uniform, as OGB's encoders.
  Encoder(WeightMaker& weights, const std::string& name, const EncoderInput& input, int64_t channels);
  static double Parameters(const EncoderInput& input, double channels);

  // [rows, channels]. features: [rows, columns], undefined without.
  at::Tensor operator()(const at::Tensor& features, int64_t rows) const;
  // Encodes features as GineEdges holds them: if combinations of categories are few, a row for each combination, and
  // the code of each edge; else a row for each edge.
  void Encode(const at::Tensor& features, int64_t rows, GineEdges& edges) const;
  // Values that Encode's rows of a set's edges take, with their gradients: the sum so far, a layer's, and both
  // together.
  static double CostOfRows(const EncoderInput& input, double edges, double channels);

 private:
  std::vector<int64_t> categories_;
  std::vector<at::Tensor> embeddings_;  // of categorical columns, or the one learned vector
  std::optional<Linear> linear_;        // of float columns
  bool learned_vector_ = false;
};

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

// Pairs of rows of a block.
struct NodePairs {
  at::Tensor sources, targets;  // [P] int64
};

// Predicts a link from the representations of its two nodes. Threads: the device thread.
class LinkDecoder {
 public:
  // Adds its parameters to `tensors`, those of a model of nodes with `channels` outputs: of kMlp decoder.lins.0 and
  // decoder.lins.1, as OGB's LinkPredictor of two layers names them.
  LinkDecoder(spec::LinkScore score, int64_t channels, uint64_t seed, at::Device device, TensorSet& tensors);

  // x: [N, channels]. Returns [P, 1] logits: kDot x_s . x_t; kMlp a linear of the ReLU of a linear of x_s * x_t.
  at::Tensor operator()(const at::Tensor& x, const NodePairs& pairs) const;

  static int64_t Parameters(spec::LinkScore score, int64_t channels);

 private:
  spec::LinkScore score_;
  std::array<Linear, 2> lins_;
};

}  // namespace permafrost::nn
