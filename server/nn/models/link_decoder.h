// Predicts a link from the representations of its two nodes.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "nn/models/model.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

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
