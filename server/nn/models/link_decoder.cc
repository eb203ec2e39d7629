#include "nn/models/link_decoder.h"

#include <ATen/ATen.h>

#include "nn/ops/lowering.h"
#include "nn/ops/rows_by_index.h"

namespace permafrost::nn {
namespace {

// Weights are not drawn as those of the model of nodes are.
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
