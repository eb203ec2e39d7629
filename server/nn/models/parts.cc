#include "nn/models/parts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nn/models/convolution.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/lowering.h"
#include "nn/ops/rows_by_index.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// If the categories of edges have at most this many combinations, one table holds them all. The table's rows and
// gradients stay in L1 cache.
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

namespace {

// Same as MaskedBatchNormRelu, but real rows may lie anywhere. mask: [N, 1] of x's type, 1 for real rows.
Tensor ScatteredBatchNormRelu(const Tensor& x, const Tensor& mask, const Tensor& weight, const Tensor& bias,
                              Tensor& running_mean, Tensor& running_var, const Tensor& batches) {
  const BatchNormOptions norm;
  const Tensor rows = mask.sum(), count = rows.clamp_min(1), follows = rows.gt(kLeastNormRows - 1);
  const Tensor mean = at::where(follows, (x * mask).sum(0) / count, running_mean);
  const Tensor centered = (x - mean) * mask;
  const Tensor squares = (centered * centered).sum(0);
  const Tensor var = at::where(follows, squares / count, running_var);
  const Tensor y = ReluRows(centered * ((var + norm.eps).rsqrt() * weight) + bias) * mask;
  const at::NoGradGuard no_grad;
  const Tensor unbiased = at::where(follows, squares.detach() / (count - 1).clamp_min(1), running_var);
  running_mean.add_((mean.detach() - running_mean) * norm.momentum);
  running_var.add_((unbiased - running_var) * norm.momentum);
  CountNormBatch(batches, rows);
  return y;
}

}  // namespace

Tensor FixedBatchNormRelu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                          const Tensor& running_var) {
  const Tensor scale = weight * (running_var + BatchNormOptions().eps).rsqrt();
  return ReluRows(at::addcmul(bias - running_mean * scale, x, scale));
}

RowNorm::RowNorm(WeightMaker& weights, const std::string& name, spec::Norm norm, int64_t width) : norm_(norm) {
  if (norm == spec::Norm::kNone) return;
  const std::string inner = norm == spec::Norm::kBatch ? name + ".module" : name;
  weight_ = weights.Filled(inner + ".weight", {width}, 1);
  bias_ = weights.Filled(inner + ".bias", {width}, 0);
  if (norm == spec::Norm::kLayer) return;
  running_mean_ = weights.Buffer(inner + ".running_mean", {width}, 0);
  running_var_ = weights.Buffer(inner + ".running_var", {width}, 1);
  batches_tracked_ = weights.Buffer(inner + ".num_batches_tracked", {}, 0, at::kLong);
}

Tensor RowNorm::BatchNormRelu(const Tensor& x, const RealRowsOf& real, bool training) const {
  if (!training) return nn::BatchNormReluEval(x, weight_, bias_, running_mean_, running_var_);
  if (!weight_.requires_grad()) return FixedBatchNormRelu(x, weight_, bias_, running_mean_, running_var_);
  if (real.count.defined()) {
    Tensor mean = running_mean_, var = running_var_;
    Tensor y = MaskedBatchNormRelu(x, real.count, weight_, bias_, mean, var);
    CountNormBatch(batches_tracked_, real.count);
    return y;
  }
  const Tensor mask = real.keys.defined() ? real.keys.narrow(0, 0, x.size(0)).gt(-1).to(x.scalar_type()).unsqueeze(1)
                                          : at::ones({x.size(0), 1}, x.options());
  return ScatteredBatchNormRelu(x, mask, weight_, bias_, running_mean_, running_var_, batches_tracked_);
}

Tensor RowNorm::Activate(const Tensor& x, const RealRowsOf& real, bool training,
                         const ConvActivation& activation) const {
  switch (norm_) {
    case spec::Norm::kBatch: {
      // BatchNormRelu has already applied ReLU.
      const Tensor& keys = activation.row_keys;
      return Dropout(BatchNormRelu(x, real, training), activation.step, activation.key, activation.p,
                     keys.defined() ? keys.narrow(0, 0, x.size(0)) : keys);
    }
    case spec::Norm::kLayer:
      return nn::Activate(at::layer_norm(x, {x.size(1)}, weight_, bias_), activation);
    default:
      return nn::Activate(x, activation);
  }
}

at::Tensor Join(const std::vector<at::Tensor>& outputs, spec::JumpingKnowledge how) {
  switch (how) {
    case spec::JumpingKnowledge::kCat:
      return at::cat(outputs, 1);
    case spec::JumpingKnowledge::kMax: {
      at::Tensor largest = outputs.front();
      for (size_t l = 1; l < outputs.size(); ++l) largest = at::where(outputs[l].gt(largest), outputs[l], largest);
      return largest;
    }
    case spec::JumpingKnowledge::kLast:
      break;
  }
  return outputs.back();
}

namespace {

// Makes the decoder's draws differ from the draws of a node-level model with the same seed.
constexpr uint64_t kDecoderSeed = 0x6c696e6b;

}  // namespace

LinkDecoder::LinkDecoder(spec::LinkScore score, int64_t channels, uint64_t seed, at::Device device, TensorSet& tensors)
    : score_(score) {
  if (score == spec::LinkScore::kDot) return;
  WeightMaker weights(seed ^ kDecoderSeed, device, tensors);
  lins_ = {weights.MakeLinear("decoder.lins.0", channels, channels), weights.MakeLinear("decoder.lins.1", channels, 1)};
}

at::Tensor LinkDecoder::operator()(const at::Tensor& x, const NodePairs& pairs) const {
  const at::Tensor products = PairProducts(x, pairs.sources, pairs.targets);
  if (score_ == spec::LinkScore::kDot) return products.sum(1, /*keepdim=*/true);
  return lins_[1](ReluRows(lins_[0](products)));
}

int64_t LinkDecoder::Parameters(spec::LinkScore score, int64_t channels) {
  return score == spec::LinkScore::kDot ? 0 : channels * channels + 2 * channels + 1;
}

}  // namespace permafrost::nn
