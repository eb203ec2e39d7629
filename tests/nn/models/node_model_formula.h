// The formulas of node-level models, written out over dense matrices. Every layer runs over every row.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "nn/models/model.h"

// The nested namespace keeps these names apart from those of the tests.
namespace permafrost::nn::formula {

using at::Tensor;

inline Tensor Parameter(NodeModel& model, const std::string& name) {
  for (const NamedTensor& t : model.tensors().parameters()) {
    if (t.name == name) return t.value;
  }
  ADD_FAILURE() << name << ": no such parameter";
  return {};
}

// Returns the features as [N, width] float64.
inline Tensor DenseFeatures(const NodeBlock& block, int64_t width) {
  if (block.features.defined()) return block.features.to(at::kDouble);
  const int64_t rows = block.feature_offsets.size(0) - 1;
  Tensor out = at::zeros({rows, width}, at::kDouble);
  for (int64_t r = 0; r < rows; ++r) {
    for (auto e = block.feature_offsets[r].item<int64_t>(); e < block.feature_offsets[r + 1].item<int64_t>(); ++e) {
      out[r][block.feature_columns[e].item<int64_t>()] += block.feature_values[e].item<float>();
    }
  }
  return out;
}

// Returns two [rows, rows] matrices. Element [i][j] is the total weight of the edges from j to i in the first, and
// their number in the second.
inline std::pair<Tensor, Tensor> Adjacency(const NodeBlock& block) {
  const int64_t rows = block.row_ends.back();
  Tensor weights = at::zeros({rows, rows}, at::kDouble), counts = at::zeros({rows, rows}, at::kDouble);
  for (int64_t r = 0; r + 1 < block.offsets.size(0); ++r) {
    for (auto e = block.offsets[r].item<int64_t>(); e < block.offsets[r + 1].item<int64_t>(); ++e) {
      const auto source = block.sources[e].item<int64_t>();
      weights[r][source] += block.edge_weights.defined() ? block.edge_weights[e].item<float>() : 1.0F;
      counts[r][source] += 1;
    }
  }
  return {weights, counts};
}

// GATv2 over all pairs of rows. Parallel edges count once each. Every row has exactly one self-loop, which replaces
// the self-loops of the block. `parameter(suffix)` returns the layer's parameter of that name, such as ".att".
template <class Parameter>
Tensor Attended(int64_t heads, bool joins, const Tensor& counts, const Tensor& h, const Parameter& parameter) {
  const int64_t rows = h.size(0);
  const Tensor left = h.mm(parameter(".lin_l.weight").t()) + parameter(".lin_l.bias");
  const Tensor right = h.mm(parameter(".lin_r.weight").t()) + parameter(".lin_r.bias");
  const int64_t channels = left.size(1) / heads;
  const Tensor times = counts - counts.diag().diag() + at::eye(rows, at::kDouble);
  // [target, source, heads, channels]
  const Tensor z = right.view({rows, 1, heads, channels}) + left.view({1, rows, heads, channels});
  const Tensor scores = (at::leaky_relu(z, 0.2) * parameter(".att")).sum(-1);
  const Tensor weights = scores.exp() * times.unsqueeze(2);
  const Tensor alpha = weights / weights.sum(1, /*keepdim=*/true);
  const Tensor out = at::einsum("tsh,shc->thc", {alpha, left.view({rows, heads, channels})});
  return (joins ? out.reshape({rows, -1}) : out.mean(1)) + parameter(".bias");
}

// The edges of a block one by one: their targets, their sources, and their encoded features.
struct EdgeList {
  Tensor targets, sources, rows;
};
inline EdgeList EdgesOf(NodeModel& model, const NodeModelOptions& options, const NodeBlock& block) {
  const int64_t rows = block.offsets.size(0) - 1, edges = block.offsets[-1].item<int64_t>();
  EdgeList list{.targets = at::repeat_interleave(at::arange(rows, at::kLong), block.offsets.diff()),
                .sources = block.sources.narrow(0, 0, edges),
                .rows = {}};
  if (!block.edge_features.defined()) return list;
  const Tensor features = block.edge_features.narrow(0, 0, edges);
  if (options.edge.float_columns > 0) {
    list.rows = features.to(at::kDouble);
    return list;
  }
  list.rows = at::zeros({edges, options.model.hidden_channels}, at::kDouble);
  for (int64_t c = 0; c < features.size(1); ++c) {
    const Tensor table = Parameter(model, "edge_encoder.embeddings." + std::to_string(c) + ".weight");
    list.rows += table.to(at::kDouble).index_select(0, features.select(1, c));
  }
  return list;
}

template <class Parameter>
Tensor GineOf(const EdgeList& edges, const Tensor& h, const Parameter& parameter) {
  const Tensor mapped = edges.rows.mm(parameter(".lin.weight").t()) + parameter(".lin.bias");
  const Tensor sum = h.index_add(0, edges.targets, (h.index_select(0, edges.sources) + mapped).relu());
  const Tensor inner = (sum.mm(parameter(".nn.lins.0.weight").t()) + parameter(".nn.lins.0.bias")).relu();
  return inner.mm(parameter(".nn.lins.1.weight").t()) + parameter(".nn.lins.1.bias");
}

// GATv2 with edge features. Each self-loop has the mean of the mapped features of the other edges into its node.
template <class Parameter>
Tensor AttendedEdges(int64_t heads, bool joins, const EdgeList& edges, const Tensor& h, const Parameter& parameter) {
  const int64_t rows = h.size(0);
  const Tensor left = h.mm(parameter(".lin_l.weight").t()) + parameter(".lin_l.bias");
  const Tensor right = h.mm(parameter(".lin_r.weight").t()) + parameter(".lin_r.bias");
  const int64_t channels = left.size(1) / heads;
  const Tensor others = edges.targets.ne(edges.sources).nonzero().squeeze(1);
  const Tensor loops = at::arange(rows, at::kLong);
  const Tensor to = edges.targets.index_select(0, others), from = edges.sources.index_select(0, others);
  const Tensor mapped = edges.rows.mm(parameter(".lin_edge.weight").t()).index_select(0, others);
  const Tensor count = at::zeros({rows}, at::kDouble).index_add(0, to, at::ones_like(to).to(at::kDouble));
  const Tensor means = at::zeros_like(left).index_add(0, to, mapped) / count.clamp_min(1).unsqueeze(1);
  const Tensor all_to = at::cat({to, loops}), all_from = at::cat({from, loops}), all_edges = at::cat({mapped, means});
  const Tensor z = left.index_select(0, all_from) + right.index_select(0, all_to) + all_edges;
  const Tensor scores = (at::leaky_relu(z, 0.2).view({-1, heads, channels}) * parameter(".att")).sum(-1).exp();
  const Tensor total = at::zeros({rows, heads}, at::kDouble).index_add(0, all_to, scores);
  const Tensor alpha = scores / total.index_select(0, all_to);
  const Tensor messages = left.index_select(0, all_from).view({-1, heads, channels}) * alpha.unsqueeze(2);
  const Tensor out = at::zeros({rows, heads, channels}, at::kDouble).index_add(0, all_to, messages);
  return (joins ? out.reshape({rows, -1}) : out.mean(1)) + parameter(".bias");
}

// Returns the model's output in evaluation mode, with every layer over every row.
inline Tensor Reference(NodeModel& model, const NodeModelOptions& options, const NodeBlock& block) {
  const auto [weights, counts] = Adjacency(block);
  Tensor h = DenseFeatures(block, options.in_channels);
  for (int64_t l = 0; l < options.model.num_layers; ++l) {
    const std::string conv = "convs." + std::to_string(l);
    const auto parameter = [&](const char* name) { return Parameter(model, conv + name).to(at::kDouble); };
    if (options.model.architecture == spec::Architecture::kSage) {
      const Tensor mean = counts.mm(h) / counts.sum(1, true).clamp_min(1);
      h = mean.mm(parameter(".lin_l.weight").t()) + parameter(".lin_l.bias") + h.mm(parameter(".lin_r.weight").t());
    } else if (options.model.architecture == spec::Architecture::kGin) {
      const Tensor sum = counts.mm(h) + h;
      const Tensor inner = (sum.mm(parameter(".nn.lins.0.weight").t()) + parameter(".nn.lins.0.bias")).relu();
      h = inner.mm(parameter(".nn.lins.1.weight").t()) + parameter(".nn.lins.1.bias");
    } else if (options.model.architecture == spec::Architecture::kGine) {
      h = GineOf(EdgesOf(model, options, block), h, parameter);
    } else if (options.edge.has_features()) {
      h = AttendedEdges(options.model.heads, l + 1 < options.model.num_layers, EdgesOf(model, options, block), h,
                        parameter);
    } else if (options.model.architecture == spec::Architecture::kGatv2) {
      h = Attended(options.model.heads, l + 1 < options.model.num_layers, counts, h, parameter);
    } else {
      // PyG's add_remaining_self_loops, then D^-1/2 A D^-1/2.
      const Tensor loops = at::where(counts.diag().gt(0), weights.diag(), at::ones({}, at::kDouble));
      const Tensor with_loops = weights - weights.diag().diag() + loops.diag();
      const Tensor factor = with_loops.sum(1).rsqrt().diag();
      h = factor.mm(with_loops).mm(factor).mm(h.mm(parameter(".lin.weight").t())) + parameter(".bias");
    }
    if (l + 1 < options.model.num_layers) h = h.relu();
  }
  return h.narrow(0, 0, block.row_ends[0]);
}

}  // namespace permafrost::nn::formula
