#include "train/tasks/trial_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace permafrost::train {
namespace {

using at::Tensor;
using SetBatch = nn::GraphSetBatch;
using Block = nn::NodeBlock;

Tensor Zeros(const nn::EncoderInput& features, int64_t rows) {
  if (!features.has_features()) return {};
  return features.categories.empty() ? at::zeros({rows, features.float_columns}, at::kFloat)
                                     : at::zeros({rows, std::ssize(features.categories)}, at::kLong);
}

// Edges of a ring of nodes, by their targets, which rise.
struct Ring {
  Tensor sources, targets;
};
Ring MakeRing(int64_t nodes, int64_t edges) {
  const Tensor targets = at::arange(edges, at::kLong).mul(nodes).floor_divide(std::max<int64_t>(edges, 1));
  return {targets.add(1).remainder(nodes), targets};
}

// Returns varied values in the real rows, which lie at `places`. `filling` says what padding rows hold.
Tensor Padded(const nn::EncoderInput& features, const Tensor& places, int64_t rows, Filling filling) {
  if (!features.has_features()) return {};
  Tensor padding = Varied(features, rows, kOtherSeed);
  // Padding exceeds all real values, so that a maximum over it is noticed. Padding of zeros does that for a minimum.
  if (features.categories.empty()) padding *= 2;
  Tensor values = filling == Filling::kOther ? padding : at::zeros_like(padding);
  return values.index_copy_(0, places, Varied(features, places.size(0), kRealSeed));
}

Tensor PaddedLabels(const nn::EncoderInput& labels, int64_t real, int64_t rows) {
  if (!labels.has_features()) return {};
  return at::constant_pad_nd(Varied(labels, real, kRealSeed).to(at::kFloat), {0, 0, 0, rows - real},
                             std::numeric_limits<double>::quiet_NaN());
}

// Ends of `edges` real edges, and of padding, whose ends are the last row.
Tensor PaddedEnds(const Tensor& ends, int64_t edges, int64_t rows) {
  return at::constant_pad_nd(ends, {0, edges - ends.size(0)}, rows - 1);
}

}  // namespace

int64_t Columns(const nn::EncoderInput& features) {
  return features.categories.empty() ? features.float_columns : std::ssize(features.categories);
}

SetBatch MakeBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels, const BatchShape& shape) {
  const int64_t nodes = shape.nodes - 1, graphs = shape.graphs - 1;
  const Ring ring = MakeRing(nodes, shape.edges);
  return {.padded_graphs = shape.graphs,
          .node_features = Zeros(model.node, shape.nodes),
          .edge_features = Zeros(model.edge, shape.edges),
          .positions = Zeros({.float_columns = model.position_columns}, shape.nodes),
          .edge_source = ring.sources,
          .edge_target = ring.targets,
          .graph_of_node = at::arange(shape.nodes, at::kLong).mul(graphs).floor_divide(nodes),
          .labels = at::zeros({shape.graphs, Columns(labels)}, at::kFloat),
          .real_nodes = {},
          .real_graphs = {},
          .step = at::zeros({1}, at::kLong)};
}

Block MakeBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                const BatchShape& shape) {
  const Ring ring = MakeRing(shape.nodes - 1, shape.edges);
  Block block;
  block.row_ends = {shape.graphs, shape.nodes};
  block.features = at::zeros({shape.nodes, model.in_channels}, at::kFloat);
  block.positions = Zeros({.float_columns = position_columns}, shape.nodes);
  block.sources = ring.sources;
  block.edge_targets = ring.targets;
  block.edge_weights = at::ones({shape.edges}, at::kFloat);
  block.edge_features = Zeros(model.edge, shape.edges);
  if (labels.has_features()) block.labels = at::zeros({shape.graphs, Columns(labels)}, at::kFloat);
  // There are as many pairs as edges.
  block.pairs = {.sources = ring.sources.remainder(shape.graphs), .targets = ring.targets.remainder(shape.graphs)};
  block.step = at::zeros({1}, at::kLong);
  return block;
}

Tensor Varied(const nn::EncoderInput& features, int64_t rows, int64_t seed) {
  if (!features.has_features()) return {};
  const int64_t columns = Columns(features);
  constexpr double kGolden = 0.6180339887498949;
  const Tensor values =
      at::arange(seed, seed + rows * columns, at::kDouble).mul(kGolden).frac().view({rows, columns}).contiguous();
  if (features.categories.empty()) return values.to(at::kFloat);
  const Tensor categories = at::tensor(features.categories, at::kLong);
  return values.mul(categories).floor().to(at::kLong);
}

SetBatch TrialBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels, const BatchShape& shape,
                    Filling filling) {
  const Ring ring = MakeRing(kTrial.nodes, kTrial.edges);
  const Tensor nodes = at::arange(kTrial.nodes, at::kLong), edges = at::arange(kTrial.edges, at::kLong);
  return {.padded_graphs = shape.graphs,
          .node_features = Padded(model.node, nodes, shape.nodes, filling),
          .edge_features = Padded(model.edge, edges, shape.edges, filling),
          .positions = Padded({.float_columns = model.position_columns}, nodes, shape.nodes, filling),
          .edge_source = PaddedEnds(ring.sources, shape.edges, shape.nodes),
          .edge_target = PaddedEnds(ring.targets, shape.edges, shape.nodes),
          .graph_of_node = PaddedEnds(nodes.mul(kTrial.graphs).floor_divide(kTrial.nodes), shape.nodes, shape.graphs),
          .labels = PaddedLabels(labels, kTrial.graphs, shape.graphs),
          .real_nodes = at::tensor({kTrial.nodes}, at::kLong),
          .real_graphs = at::tensor({kTrial.graphs}, at::kLong),
          .step = at::zeros({1}, at::kLong)};
}

Block TrialBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                 const BlockPadding& padding, Filling filling) {
  const int64_t seeds = kTrial.graphs + padding.seeds, rows = kTrial.nodes + padding.seeds + padding.nodes,
                edges = kTrial.edges + padding.edges;
  const Ring ring = MakeRing(kTrial.nodes, kTrial.edges);
  const Tensor order = at::arange(kTrial.nodes, at::kLong);
  const Tensor places = order + order.ge(kTrial.graphs).to(at::kLong) * padding.seeds;
  Block block;
  block.row_ends = {seeds, rows};
  block.features = Padded({.float_columns = model.in_channels}, places, rows, filling);
  block.positions = Padded({.float_columns = position_columns}, places, rows, filling);
  block.sources = PaddedEnds(places.index_select(0, ring.sources), edges, rows);
  block.edge_targets = PaddedEnds(places.index_select(0, ring.targets), edges, rows);
  const Tensor real_edges = at::arange(kTrial.edges, at::kLong);
  block.edge_weights = Padded({.float_columns = 1}, real_edges, edges, filling).squeeze(1);
  block.edge_features = Padded(model.edge, real_edges, edges, filling);
  block.labels = PaddedLabels(labels, kTrial.graphs, seeds);
  block.pairs = {.sources = ring.sources.remainder(kTrial.graphs).narrow(0, 0, kTrialPairs),
                 .targets = ring.targets.remainder(kTrial.graphs).narrow(0, 0, kTrialPairs)};
  block.row_keys = at::full({rows}, -1, at::kLong).index_copy_(0, places, order);
  block.step = at::zeros({1}, at::kLong);
  return block;
}

}  // namespace permafrost::train
