// GINE for graph-level targets: encoders, message passing with batch norm, pooling, an MLP head.
//   h = sum of embeddings of the categorical node columns (or a linear map of float columns)
//   h = dropout(relu(batch_norm(mlp(h + sum over edges (j, i) of relu(h_j + e_ji)))))      num_layers times
//   prediction = mlp(pool(h))
// Source: Hu et al. 2020, "Strategies for pre-training graph neural networks", as PyG's GINEConv with eps = 0.
// Parameter names are those of the equal PyG module, which stands in tests/parity/gine.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mode.h"
#include "nn/models/graph_set_batch.h"
#include "nn/ops/masked_batch_norm.h"
#include "nn/options.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// What one feature table looks like to an encoder.
struct EncoderInput {
  // Categories of each column, values 0..n-1. Empty: float columns.
  std::vector<int64_t> categories;
  // Float columns. 0 with no categories: the set has no such features, and one learned vector stands for all rows.
  int64_t float_columns = 0;
};

struct GineOptions {
  ModelOptions model;
  EncoderInput node, edge;
  int64_t num_targets = 1;
};

// Threads: the device thread. Owns its tensors.
class Gine {
 public:
  // Weights drawn on the CPU from `seed` (equal on every device), then moved: PyTorch's defaults for linear layers,
  // Xavier uniform for embeddings as OGB's encoders.
  Gine(const GineOptions& options, uint64_t seed, at::Device device);

  // Returns [padded graphs, num_targets]. kTrain also updates the running statistics.
  at::Tensor Forward(const GraphSetBatch& batch, Mode mode);

  TensorSet& tensors() { return tensors_; }
  const TensorSet& tensors() const { return tensors_; }
  // For `__metadata__` of the weights file: what is needed to build the equal module, as JSON.
  std::string Describe() const;

 private:
  struct Linear {
    at::Tensor weight, bias;
    at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Encoder {
    std::vector<at::Tensor> embeddings;  // categorical columns, or the one learned vector
    std::optional<Linear> linear;        // float columns
    bool learned_vector = false;
    at::Tensor operator()(const at::Tensor& features, int64_t rows) const;
  };
  struct Layer {
    Linear first, second;
    at::Tensor norm_weight, norm_bias, running_mean, running_var, batches_tracked;
  };

  Linear AddLinear(const std::string& name, int64_t in, int64_t out);
  Encoder AddEncoder(const std::string& name, const EncoderInput& input);
  at::Tensor Uniform(at::IntArrayRef sizes, double bound);

  GineOptions options_;
  uint64_t seed_;
  at::Device device_;
  at::Generator generator_;
  TensorSet tensors_;
  Encoder node_encoder_, edge_encoder_;
  std::vector<Layer> layers_;
  Linear head_first_, head_second_;
};

}  // namespace permafrost::nn
