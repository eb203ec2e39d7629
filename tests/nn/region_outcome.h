// The results of a region on a graph, fused or from PyTorch's operators: its outputs, and the gradient of each input.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/region_builder.h"

namespace permafrost::nn {

enum class RegionSide { kFused, kPlain };

inline std::vector<at::Tensor> OutputsOf(RegionSide side, const EdgeRegion& region, const RegionGraph& graph,
                                         const std::vector<at::Tensor>& inputs) {
  return side == RegionSide::kFused ? RunEdgeRegion(region, inputs, EdgesOf(graph))
                                    : EdgeRegionPlain(region, inputs, graph.target_index, graph.targets, graph.indices);
}

inline OpOutcome OutcomeOf(RegionSide side, const EdgeRegion& region, const RegionGraph& graph,
                           const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> inputs, weights, differentiable;
  for (const at::Tensor& t : values) inputs.push_back(Leaf(t));
  OpOutcome outcome;
  for (const at::Tensor& out : OutputsOf(side, region, graph, inputs)) {
    outcome.emplace_back("output " + std::to_string(outcome.size()), out.detach());
    if (!out.requires_grad()) continue;
    differentiable.push_back(out);
    weights.push_back(at::cos(at::arange(out.numel(), out.scalar_type())).reshape(out.sizes()));
  }
  if (differentiable.empty()) {
    for (size_t i = 0; i < inputs.size(); ++i) outcome.emplace_back("gradient", at::zeros_like(inputs[i]));
    return outcome;
  }
  const auto gradients = torch::autograd::grad(differentiable, inputs, weights, /*retain_graph=*/std::nullopt,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < gradients.size(); ++i) {
    outcome.emplace_back("gradient of input " + std::to_string(i),
                         gradients[i].defined() ? gradients[i] : at::zeros_like(inputs[i]).detach());
  }
  return outcome;
}

inline void ExpectLikePlain(const EdgeRegion& region, const RegionGraph& graph, const std::string& why,
                            bool levels = false, double of_float = 1e-5) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const std::vector<at::Tensor> inputs = MakeInputs(region, graph, type, levels);
    ExpectClose(OutcomeOf(RegionSide::kFused, region, graph, inputs),
                OutcomeOf(RegionSide::kPlain, region, graph, inputs), type == at::kFloat ? of_float : 1e-12,
                why + (type == at::kFloat ? ", float32" : ""));
  }
}

}  // namespace permafrost::nn
