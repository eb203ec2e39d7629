// The model of a graph's nodes: convolutions one after the other, each followed by a norm, ReLU and dropout.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/convolution.h"
#include "nn/models/encoder.h"
#include "nn/models/layer_output.h"
#include "nn/models/node_model.h"

namespace permafrost::nn {

// Rows of edges, and of each edge its row among them; undefined: its own place.
struct EncodedEdges {
  at::Tensor rows, code;
};

// Threads: the device thread. Owns its tensors.
class LayeredModel final : public NodeModel {
 public:
  LayeredModel(const NodeModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const NodeModelOptions& options, const StepRows& rows);

  at::Tensor Forward(const NodeBlock& block, Mode mode) override;
  at::Tensor Project(int64_t layer, const InputRows& rows) override;
  int64_t projected_width(int64_t layer) const override;
  at::Tensor InverseSqrtDegrees(const Chunk& chunk) const override;
  at::Tensor Combine(int64_t layer, const at::Tensor& projected, const Chunk& chunk, const at::Tensor& input) override;
  bool joins() const override { return joining_.has_value(); }
  at::Tensor JoinOutput(int64_t layer, const at::Tensor& before, const at::Tensor& output) const override;
  TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;

 private:
  // The rows of sparse features, where they are embedded.
  InputRows Embedded(InputRows rows) const;
  // Normalised and embedded features with dropout, as the options say.
  InputRows Input(const NodeBlock& block, Mode mode) const;
  // Features of edges as convolutions read them; undefined: they read none.
  EncodedEdges Encoded(const at::Tensor& edge_features) const;
  at::ScalarType type() const { return tensors_.parameters().front().value.scalar_type(); }

  NodeModelOptions options_;
  uint64_t seed_;
  TensorSet tensors_;
  const ConvolutionKind& kind_;
  at::Tensor embedding_;                 // undefined: features are not embedded
  std::optional<Encoder> edge_encoder_;  // of categories
  std::vector<std::unique_ptr<Convolution>> convolutions_;
  std::vector<RowNorm> norms_;     // of layers that are followed by ReLU
  std::optional<Linear> joining_;  // of jumping knowledge
};

}  // namespace permafrost::nn
