#include "nn/models/encoder.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nn/ops/rows_by_index.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// If an edge's categories have no more combinations than this, all are in one table, whose rows and gradients stay in
// L1 cache.
constexpr int64_t kMostCombinations = 64;

bool HasFewCombinations(const std::vector<int64_t>& categories) {
  int64_t combinations = 1;
  for (const int64_t n : categories) combinations = std::min(combinations * n, kMostCombinations + 1);
  return combinations <= kMostCombinations;
}

}  // namespace

Encoder::Encoder(WeightMaker& weights, const std::string& name, const EncoderInput& input, int64_t channels)
    : categories_(input.categories) {
  if (input.float_columns > 0) {
    linear_ = weights.MakeLinear(name + ".linear", input.float_columns, channels);
    return;
  }
  learned_vector_ = categories_.empty();
  const std::vector<int64_t> tables = learned_vector_ ? std::vector<int64_t>{1} : categories_;
  for (size_t c = 0; c < tables.size(); ++c) {
    embeddings_.push_back(
        weights.Glorot(absl::StrCat(name, ".embeddings.", c, ".weight"), {tables[c], channels}, tables[c], channels));
  }
}

double Encoder::Parameters(const EncoderInput& input, double channels) {
  if (input.categories.empty()) return static_cast<double>(input.float_columns + 1) * channels;
  double rows = 0;
  for (const int64_t n : input.categories) rows += static_cast<double>(n);
  return rows * channels;
}

double Encoder::CostOfRows(const EncoderInput& input, double edges, double channels) {
  return input.float_columns > 0 || !HasFewCombinations(input.categories) ? 4 * edges * channels : 0;
}

Tensor Encoder::operator()(const Tensor& features, int64_t rows) const {
  if (linear_) return (*linear_)(features);
  if (learned_vector_) return embeddings_[0].expand({rows, embeddings_[0].size(1)});
  return EmbeddingSum(features, embeddings_);
}

void Encoder::Encode(const Tensor& features, int64_t rows, GineEdges& edges) const {
  if (linear_ || !HasFewCombinations(categories_)) {
    edges.rows = (*this)(features, rows);
  } else if (learned_vector_) {
    edges.rows = embeddings_[0];
    edges.code = at::zeros({rows}, edges.source.options().dtype(at::kInt));
  } else {
    edges.rows = CombineTables(embeddings_);
    edges.code = CombineCategories(features, categories_);
  }
}

}  // namespace permafrost::nn
