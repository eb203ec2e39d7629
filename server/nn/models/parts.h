// The parts of a model around its convolutions: encoders of feature tables; the norm, ReLU and dropout behind a
// convolution; jumping knowledge over the outputs of all layers; and the decoder of links.
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

// Describes the columns of one feature table to an encoder.
struct EncoderInput {
  // For each categorical column, the number n of its categories; its values are 0..n-1. Empty if the columns are
  // floats.
  std::vector<int64_t> categories;
  // Number of float columns. With 0 and no categories, there are no features; in a set, one learned vector then
  // serves all rows.
  int64_t float_columns = 0;
  bool has_features() const { return float_columns > 0 || !categories.empty(); }
};

// Encodes a feature table. Each categorical column has an embedding, and the embeddings are summed (as in OGB's
// AtomEncoder). Float columns go through a linear map. A set without features gets one learned vector for all rows.
// Threads: the device thread. The tensors belong to the model.
class Encoder {
 public:
  // Draws embeddings by Xavier uniform, as OGB's encoders do.
  Encoder(WeightMaker& weights, const std::string& name, const EncoderInput& input, int64_t channels);
  static double Parameters(const EncoderInput& input, double channels);

  // Returns [rows, channels]. features: [rows, columns]; undefined if there are none.
  at::Tensor operator()(const at::Tensor& features, int64_t rows) const;
  // Encodes features into `edges`. If there are few combinations of categories, writes a row for each combination and
  // the code of each edge. Otherwise writes a row for each edge.
  void Encode(const at::Tensor& features, int64_t rows, GineEdges& edges) const;
  // Returns the number of values in the edge rows that Encode makes for a set, and in three gradients of these rows:
  // the sum so far, one layer's gradient, and the new sum.
  static double CostOfRows(const EncoderInput& input, double edges, double channels);

 private:
  std::vector<int64_t> categories_;
  std::vector<at::Tensor> embeddings_;  // one for each categorical column, or the one learned vector
  std::optional<Linear> linear_;        // for float columns
  bool learned_vector_ = false;
};

// Tells batch norm which rows are real. With `count`, [1] int64, they are the first `count` rows. With `keys`, [N]
// int64, they are the rows whose key is not negative. If neither is defined, all rows are real.
struct RealRowsOf {
  at::Tensor count, keys;
};

// Applies batch norm by the running statistics, then ReLU. It serves training with a fixed norm (TensorSet::Fix), so
// it does not update the statistics. x: [N, C]; the rest: [C]. Differentiable in x.
at::Tensor FixedBatchNormRelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& running_mean, const at::Tensor& running_var);

// The norm, ReLU and dropout behind a layer. Threads: the device thread. The tensors belong to the model.
class RowNorm {
 public:
  // kBatch: PyG's BatchNorm (NAME.module.*). kLayer: PyG's LayerNorm with mode "node" (NAME.*). kNone: no norm.
  RowNorm(WeightMaker& weights, const std::string& name, spec::Norm norm, int64_t width);
  static double Parameters(spec::Norm norm, double width) { return norm == spec::Norm::kNone ? 0 : 2 * width; }

  // Returns dropout(relu(norm(x))). x: [N, width]. In training, batch norm uses the batch's own moments and updates
  // the running statistics. If its weight is fixed, or fewer than two rows are real, it uses the running statistics
  // and leaves them unchanged.
  at::Tensor Activate(const at::Tensor& x, const RealRowsOf& real, bool training,
                      const ConvActivation& activation) const;

 private:
  at::Tensor BatchNormRelu(const at::Tensor& x, const RealRowsOf& real, bool training) const;

  spec::Norm norm_;
  at::Tensor weight_, bias_;
  mutable at::Tensor running_mean_, running_var_, batches_tracked_;  // for kBatch
};

// Jumping knowledge: predictions are made from the outputs of all layers. Source: Xu et al. 2018, "Representation
// learning on graphs with jumping knowledge networks", as PyG's JumpingKnowledge.
// JoinedWidth returns the number of channels of Join's result.
constexpr int64_t JoinedWidth(const spec::ModelOptions& model) {
  return model.hidden_channels * (model.jumping_knowledge == spec::JumpingKnowledge::kCat ? model.num_layers : 1);
}
// Joins the outputs of all layers. outputs: [N, hidden] for each layer; not empty.
at::Tensor Join(const std::vector<at::Tensor>& outputs, spec::JumpingKnowledge how);

// Pairs of nodes, as rows of a block.
struct NodePairs {
  at::Tensor sources, targets;  // [P] int64
};

// Predicts a link from the representations of its two nodes. Threads: the device thread.
class LinkDecoder {
 public:
  // Adds the decoder's parameters to `tensors`, the set of a node-level model with `channels` outputs. kMlp has
  // decoder.lins.0 and decoder.lins.1, as OGB's two-layer LinkPredictor names them.
  LinkDecoder(spec::LinkScore score, int64_t channels, uint64_t seed, at::Device device, TensorSet& tensors);

  // x: [N, channels]. Returns [P, 1] logits. kDot: x_s . x_t. kMlp: two linear maps with ReLU between, on x_s * x_t.
  at::Tensor operator()(const at::Tensor& x, const NodePairs& pairs) const;

  static int64_t Parameters(spec::LinkScore score, int64_t channels);

 private:
  spec::LinkScore score_;
  std::array<Linear, 2> lins_;
};

}  // namespace permafrost::nn
