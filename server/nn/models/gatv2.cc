// GATv2: attention over neighbours and the row itself (nn/ops/gat_attention.h). The heads' outputs are concatenated;
// in a last layer they are averaged.
// Source: Brody et al. 2022, "How attentive are graph attention networks?", as PyG's GATv2Conv.

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "nn/models/convolution.h"
#include "nn/ops/chunks.h"
#include "nn/ops/gat_attention.h"
#include "nn/ops/lowering.h"
#include "nn/ops/rows_by_index.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Threads: the device thread.
class Gatv2 final : public Convolution {
 public:
  // Draws weights as PyG does: Glorot for weights, torch.nn.Linear's default for biases of linear maps, 0 for the
  // last bias.
  Gatv2(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  // Returns the products of both linear maps, side by side.
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override { return 2 * width_; }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  // If the model reads edge rows, adds the rows of the edges and of the self-loops to `edges`. rows, code: as in
  // ConvCall. weights: from MeanWeights, for the means that serve as rows of self-loops.
  void AddEdgeRows(const Tensor& rows, const Tensor& code, const Tensor& weights, GatEdges& edges) const;
  // Averages the heads if they are not joined, and adds the bias.
  Tensor Finish(const Tensor& attended) const;

  ConvShape shape_;
  int64_t width_;  // columns of all heads together
  Linear left_, right_;
  Tensor attention_, bias_, edge_;
};

int64_t WidthOf(const ConvShape& shape) { return shape.joins_heads ? shape.out : shape.heads * shape.out; }

// Returns [entries]: the weight of each edge's row in the mean over its target's edges. The weight is 1 / the number
// of the target's edges from other rows. A self-loop has weight 0. first_row: the source row that target 0 stands
// for.
Tensor MeanWeights(const Tensor& offsets, const Tensor& sources, int64_t first_row, at::ScalarType type) {
  const Tensor own = SegmentOfEntry(offsets, sources.size(0));
  const Tensor is_other = 1 - sources.eq(first_row == 0 ? own : own + first_row).to(type);
  const Tensor places = at::arange(sources.size(0), sources.options());
  const Tensor count = SegmentSum(is_other.unsqueeze(1), offsets, places, {}).squeeze(1).clamp_min(1);
  // Padding edges belong to one extra row behind the last.
  return is_other / SelectRows(at::cat({count, at::ones({1}, count.options())}), own);
}

// Returns [T, columns]: for each row, the mean over its in-edges; 0 if it has none.
Tensor MeansOfEdges(const Tensor& rows, const Tensor& offsets, const Tensor& weights) {
  return SegmentSum(rows, offsets, at::arange(rows.size(0), offsets.options()), weights);
}

Gatv2::Gatv2(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : shape_(shape), width_(WidthOf(shape)) {
  const int64_t channels = width_ / shape.heads;
  attention_ = weights.Glorot(name + ".att", {1, shape.heads, channels}, shape.heads, channels);
  bias_ = weights.Filled(name + ".bias", {shape.out}, 0);
  const auto linear = [&](const char* which, int64_t in) {
    return weights.Glorot(name + which + ".weight", {width_, in}, in, width_);
  };
  const auto bias = [&](const char* which) {
    return weights.Uniform(name + which + ".bias", {width_}, 1 / std::sqrt(static_cast<double>(shape.in)));
  };
  left_.weight = linear(".lin_l", shape.in);
  left_.bias = bias(".lin_l");
  right_.weight = linear(".lin_r", shape.in);
  right_.bias = bias(".lin_r");
  if (shape.edge_channels > 0) edge_ = linear(".lin_edge", shape.edge_channels);
}

// Returns the weights of the means that self-loops read. These weights are equal in all layers.
MessageNorm Gatv2::NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& /*edge_weights*/,
                          int64_t /*rows*/, at::ScalarType type, bool edge_rows) {
  if (!edge_rows) return {};
  return {.weights = MeanWeights(offsets, sources, /*first_row=*/0, type), .self = {}, .scale = {}};
}

// Autograd saves the rows of both linear maps, alpha of every slot, the attended rows, and everything computed from
// the attended rows. It saves the edge rows twice: mapped, and averaged by row. The backward pass makes gradients of
// all these tensors.
ConvCost Gatv2::Cost(const ConvShape& shape, const ConvRows& rows) {
  const auto in = static_cast<double>(shape.in), width = static_cast<double>(WidthOf(shape)),
             out = static_cast<double>(shape.out), heads = static_cast<double>(shape.heads),
             edge = static_cast<double>(shape.edge_channels);
  const double slots = (rows.edges + rows.targets) * heads;
  const double of_edges = edge > 0 ? rows.edges * width + rows.targets * width + 6 * rows.edges : 0;
  const auto chunks =
      static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(rows.targets), static_cast<int64_t>(width)));
  return {.parameters = 2 * (in * width + width) + width + out + edge * width,
          .saved = rows.sources * width + 2 * rows.targets * width + slots + rows.targets * 2 * out + of_edges,
          .backward = rows.sources * width + 2 * rows.targets * width + slots + chunks * width + 2 * of_edges +
                      2 * rows.targets * out + (rows.first ? 0 : 3 * rows.sources * in)};
}

Tensor Gatv2::Finish(const Tensor& attended) const {
  if (shape_.joins_heads) return attended + bias_;
  return attended.view({attended.size(0), shape_.heads, shape_.out}).sum(1) / shape_.heads + bias_;
}

void Gatv2::AddEdgeRows(const Tensor& rows, const Tensor& code, const Tensor& weights, GatEdges& edges) const {
  if (!edge_.defined()) return;
  // Maps each row of the table only once, instead of once for each edge.
  const Tensor mapped = LinearRows(rows, edge_);
  edges.rows = code.defined() ? EmbeddingSum(code.to(at::kLong).unsqueeze(1), {mapped}) : mapped;
  edges.self_rows = MeansOfEdges(edges.rows, edges.offsets, weights);
}

Tensor Gatv2::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const int64_t targets = call.edges.offsets.size(0) - 1;
  // Dense rows take one operator. Its backward computes the gradients of the bias and of the weight in one pass over
  // the rows.
  const auto linear = [](const LayerWiseModel::InputRows& rows, const Linear& map) {
    const ConvActivation without{.relu = false, .step = {}, .key = {}, .p = 0, .row_keys = {}};
    return rows.dense.defined() ? GraphConv(rows.dense, {}, map.weight, map.bias, {}, without)
                                : MultiplyRows(rows, map.weight) + map.bias;
  };
  const Tensor left = linear(in, left_), right = linear(FirstRows(in, targets), right_);
  GatEdges edges{.offsets = call.edges.offsets,
                 .sources = call.edges.sources,
                 .transpose = call.edges.transpose,
                 .rows = {},
                 .self_rows = {}};
  AddEdgeRows(call.edge_rows, call.edge_code, call.edges.weights, edges);
  // Attention draws dropout masks of its own, which differ from the masks of the layers' outputs.
  constexpr int64_t kAttentionMasks = 1 << 20;
  const ConvActivation& a = call.activation;
  const Tensor attended = GatAttention(left, right, attention_.view({width_}), edges,
                                       {.heads = shape_.heads,
                                        .step = a.step,
                                        .key = {.seed = a.key.seed, .layer = a.key.layer + kAttentionMasks},
                                        .p = call.attention_p,
                                        .row_keys = a.row_keys});
  return Activate(Finish(attended), a);
}

Tensor Gatv2::Project(const LayerWiseModel::InputRows& rows) const {
  return MultiplyRows(rows, at::cat({left_.weight, right_.weight})) + at::cat({left_.bias, right_.bias});
}

Tensor Gatv2::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor right = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1).narrow(1, width_, width_);
  GatEdges edges{.offsets = chunk.offsets, .sources = chunk.sources, .transpose = {}, .rows = {}, .self_rows = {}};
  const Tensor weights =
      edge_.defined() ? MeanWeights(chunk.offsets, chunk.sources, chunk.first_row, projected.scalar_type()) : Tensor();
  AddEdgeRows(chunk.edge_features, chunk.edge_code, weights, edges);
  return Finish(
      GatAttention(projected.narrow(1, 0, width_), right, attention_.view({width_}), edges,
                   {.heads = shape_.heads, .step = {}, .key = {}, .row_keys = {}, .first_row = chunk.first_row}));
}

}  // namespace

const ConvolutionKind kGatv2Convolution{.architecture = spec::Architecture::kGatv2,
                                        .make = &MakeConvolution<Gatv2>,
                                        .norm = &Gatv2::NormOf,
                                        .inverse_sqrt_degrees = nullptr,
                                        .cost = &Gatv2::Cost};

}  // namespace permafrost::nn
