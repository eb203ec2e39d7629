// Encoders of feature tables: a sum of one embedding a categorical column (as OGB's AtomEncoder),
// or a linear map of float columns, or one learned vector where a set has no such features.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/ops/gine_layer.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// The form of one feature table, as an encoder sees it.
struct EncoderInput {
  // Categories of each column, values 0..n-1. Empty: float columns.
  std::vector<int64_t> categories;
  // Float columns. 0 with no categories: there are no such features; in a set one learned vector stands for all rows.
  int64_t float_columns = 0;
  bool has_features() const { return float_columns > 0 || !categories.empty(); }
};

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

}  // namespace permafrost::nn
