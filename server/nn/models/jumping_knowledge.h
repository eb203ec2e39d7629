// Jumping knowledge: what predicts is made of the outputs of all layers. Source: Xu et al. 2018, "Representation
// learning on graphs with jumping knowledge networks", as PyG's JumpingKnowledge.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace permafrost::nn {

// Channels of what Join returns.
constexpr int64_t JoinedWidth(const spec::ModelOptions& model) {
  return model.hidden_channels * (model.jumping_knowledge == spec::JumpingKnowledge::kCat ? model.num_layers : 1);
}
// outputs: [N, hidden] of each layer; not empty.
at::Tensor Join(const std::vector<at::Tensor>& outputs, spec::JumpingKnowledge how);

}  // namespace permafrost::nn
