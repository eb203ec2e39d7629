// What GraphSAGE and GCN share: convolutions one after the other, relu and dropout between them.
#pragma once

#include <ATen/core/Generator.h>

#include <string>

#include "nn/models/model_cost.h"
#include "nn/models/node_model.h"
#include "nn/ops/graph_conv.h"

namespace permafrost::nn {

// What a convolution multiplies messages with, equal in all layers of a block: ConvEdges of nn/ops/graph_conv.h.
// Undefined where it does not.
struct MessageNorm {
  at::Tensor weights;  // [E]
  at::Tensor self;     // [rows with in-edges]
  at::Tensor scale;    // [rows with in-edges]
};

// Threads: the device thread. Owns its tensors.
class LayeredModel : public NodeModel {
 public:
  // Of a model with `weights` matrices of [out, in] in each layer.
  static ModelCost Cost(const NodeModelOptions& options, const StepRows& rows, int weights);

  at::Tensor Forward(const NodeBlock& block, Mode mode) final;
  at::Tensor Combine(int64_t layer, const at::Tensor& projected, const Chunk& chunk) final;
  TensorSet& tensors() final { return tensors_; }
  std::string Describe() const final;

 protected:
  LayeredModel(const NodeModelOptions& options, uint64_t seed, at::Device device);

  virtual MessageNorm NormOf(const NodeBlock& block) const = 0;
  // [targets, output_width(layer)], with the activation. targets: rows of `edges`, or, where its offsets are
  // undefined, of `in`, whose sums are made already.
  virtual at::Tensor Convolve(int64_t layer, const InputRows& in, const ConvEdges& edges,
                              const ConvActivation& activation) const = 0;
  virtual at::Tensor ConvolveProjected(int64_t layer, const at::Tensor& projected, const Chunk& chunk) const = 0;

  int64_t num_layers() const { return options_.model.num_layers; }
  int64_t input_width(int64_t layer) const;
  int64_t output_width(int64_t layer) const;
  at::Tensor AddUniform(std::string name, at::IntArrayRef sizes, double bound);
  at::Tensor AddZeros(std::string name, at::IntArrayRef sizes);

  // rows * weight^T. weight: [out, in].
  static at::Tensor Linear(const InputRows& rows, const at::Tensor& weight);
  // The same rows, dense, in the weight's type.
  static at::Tensor Dense(const InputRows& rows, const at::Tensor& weight);
  static InputRows FirstRows(const InputRows& rows, int64_t count);
  // Whether rows are aggregated before they are multiplied by the weight. They are where that leaves fewer rows to
  // multiply, or narrower rows to gather; sparse rows are always multiplied first.
  static bool AggregatesFirst(const InputRows& in, const ConvEdges& edges, const at::Tensor& weight);

 private:
  NodeModelOptions options_;
  uint64_t seed_;
  at::Device device_;
  at::Generator generator_;
  TensorSet tensors_;
};

}  // namespace permafrost::nn
