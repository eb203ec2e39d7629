// The table of all convolutions, and their shared functions. The convolutions here take a sum, a mean or a maximum
// over neighbours: GCN, GraphSAGE, GIN and GINE. Attention is in gatv2.cc.
#include "nn/models/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "nn/ops/chunks.h"
#include "nn/ops/gine_layer.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;
using InputRows = LayerWiseModel::InputRows;

namespace {

constexpr std::array kKinds{&kSageConvolution, &kGcnConvolution, &kGinConvolution, &kGineConvolution,
                            &kGatv2Convolution};

}  // namespace

const ConvolutionKind& ConvolutionOf(spec::Architecture architecture) {
  const auto* const kind = std::ranges::find(kKinds, architecture, &ConvolutionKind::architecture);
  TORCH_CHECK(kind != kKinds.end(), spec::kArchitectureNames.Name(architecture), " has no convolution of its own");
  return **kind;
}

void CheckLevel(spec::Architecture architecture, spec::ModelLevel level) {
  TORCH_CHECK(TraitsOf(architecture).Serves(level), spec::kArchitectureNames.Name(architecture),
              " is not a model of this level");
}

Tensor MultiplyRows(const InputRows& rows, const Tensor& weight) {
  if (rows.dense.defined()) return LinearRows(rows.dense, weight);
  const Tensor& values = rows.feature_values;
  return SparseLinear(weight, rows.feature_offsets, rows.feature_columns,
                      values.defined() ? values.to(weight.scalar_type()) : values);
}

InputRows FirstRows(const InputRows& rows, int64_t count) {
  InputRows first = rows;
  if (rows.dense.defined()) {
    // Narrowing to all rows would only cost a copy in the backward pass.
    if (count < rows.dense.size(0)) first.dense = rows.dense.narrow(0, 0, count);
  } else {
    first.feature_offsets = rows.feature_offsets.narrow(0, 0, count + 1);
  }
  return first;
}

Tensor Activate(const Tensor& x, const ConvActivation& activation) {
  if (!activation.relu) return x;
  const Tensor& keys = activation.row_keys;
  return Dropout(ReluRows(x), activation.step, activation.key, activation.p,
                 keys.defined() ? keys.narrow(0, 0, x.size(0)) : keys);
}

namespace {

// Returns the rows as a dense tensor; sparse rows become dense in the weight's type.
Tensor DenseRows(const InputRows& rows, const Tensor& weight) {
  if (rows.dense.defined()) return rows.dense;
  return DenseOfSparse(rows.feature_offsets, rows.feature_columns, rows.feature_values, weight.size(1),
                       weight.scalar_type());
}

// Returns whether rows are aggregated before they are multiplied by the weight. Aggregating first pays if fewer rows
// are then multiplied, or if narrower rows are gathered. Sparse rows are always multiplied first.
bool AggregatesFirst(const InputRows& in, const ConvEdges& edges, const Tensor& weight) {
  if (!in.dense.defined()) return false;
  return !edges.offsets.defined() || edges.offsets.size(0) - 1 < in.dense.size(0) || weight.size(1) <= weight.size(0);
}

// Returns the cost of a convolution that multiplies by `weights` matrices [out, in] as GraphConv does. Autograd saves
// the layer's output and the rows that the weights multiply. The backward pass holds the gradients of the output, of
// the multiplied rows (with a packed copy) and, twice, of the input. It also holds each chunk's gradients of the
// weights.
ConvCost GraphConvCost(const ConvShape& shape, const ConvRows& rows, int weights) {
  const auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  // The columns that the weights multiply: the columns of the sums and, with a second weight, the columns of the rows
  // themselves.
  const bool aggregates_first = in <= out || rows.targets < rows.sources;
  const double multiplied = aggregates_first ? weights * in : 0;
  const double of_input = rows.first ? rows.sources * std::min(in, out) : 3 * rows.sources * in;
  const double partial = multiplied * out + out;
  const auto chunks =
      static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(rows.targets), static_cast<int64_t>(partial)));
  return {.parameters = weights * in * out + out,
          .saved = rows.targets * (multiplied + out),
          .backward = rows.targets * (2 * out + std::max(2 * multiplied, out)) + chunks * partial + of_input};
}

}  // namespace

// GCN: h_i' = W sum over edges (j, i) and the self-loop (i, i) of w_ji / sqrt(d_j d_i) h_j + b, where d is the
// degree, self-loop included. Existing self-loops keep their weight; missing self-loops are added with weight 1.
// Source: Kipf and Welling 2017, "Semi-supervised classification with graph convolutional networks", as PyG's
// GCNConv.

namespace {

// Threads: the device thread.
class Gcn final : public Convolution {
 public:
  // Draws weights with PyG's initialisers: Glorot, and 0 for the bias.
  Gcn(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static Tensor InverseSqrtDegrees(const LayerWiseModel::Chunk& chunk, at::ScalarType type);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows) {
    return GraphConvCost(shape, rows, /*weights=*/1);
  }

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override { return std::min(in_, out_); }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  // Returns true if Project returns its input unchanged, because the input is no wider than the product.
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  Tensor bias_, weight_;
};

// The in-edges of rows first_row, first_row + 1, ... of the graph.
struct InEdges {
  InEdges(int64_t first_row, Tensor offsets_in, Tensor sources_in, const Tensor& weights_in, at::ScalarType type)
      : offsets(std::move(offsets_in)),
        sources(std::move(sources_in)),
        weights(weights_in.defined() ? weights_in.to(type) : Tensor()),
        options(offsets.options().dtype(type)),
        is_self_loop(sources.eq(SegmentOfEntry(offsets, sources.size(0)) + first_row)) {}

  // Returns [rows]: for each row, the sum of `of_edge` over its edges.
  Tensor Sum(const Tensor& of_edge) const {
    const Tensor places = at::arange(sources.size(0), sources.options());
    return SegmentSum(of_edge.unsqueeze(1), offsets, places, Tensor()).squeeze(1);
  }
  Tensor Zero() const { return at::zeros({}, options); }
  Tensor Ones() const { return weights.defined() ? weights : at::ones({sources.size(0)}, options); }

  // Returns [rows]: the weight of each row's self-loop. A row without a self-loop gets 1. To this 1, each self-loop
  // adds its weight less 1, so a row with a single self-loop gets exactly that loop's weight. Returns an undefined
  // tensor if all rows get 1.
  Tensor SelfLoops() const {
    if (!weights.defined()) return {};
    return Sum(at::where(is_self_loop, weights - 1, Zero())) + 1;
  }
  // Returns [rows]: degree^-1/2, or 0 if the degree is not positive.
  Tensor InverseSqrtDegrees() const {
    const Tensor degrees = Sum(Ones() - is_self_loop.to(options.dtype())) + 1;
    return at::where(degrees.gt(0), degrees.rsqrt(), Zero());
  }
  // factors: InverseSqrtDegrees of these rows. of_all: the factors of all rows of the graph. MessageNorm::self stands
  // for the self-loops, so edges that are self-loops get weight 0.
  MessageNorm NormOf(const Tensor& factors, const Tensor& of_all) const {
    const Tensor of_source = SelectRows(of_all, sources), loops = SelfLoops();
    return {.weights = at::where(is_self_loop, Zero(), weights.defined() ? of_source * weights : of_source),
            .self = loops.defined() ? factors * loops : factors,
            .scale = factors};
  }

  Tensor offsets, sources, weights;
  at::TensorOptions options;
  Tensor is_self_loop;
};

// Returns the sums of h over in-edges and self-loops, for rows first_row, first_row + 1, ...
Tensor Aggregate(const Tensor& h, int64_t first_row, const Tensor& offsets, const Tensor& sources,
                 const MessageNorm& norm) {
  const int64_t rows = offsets.size(0) - 1;
  const Tensor sum = SegmentSum(h, offsets, sources, norm.weights);
  return at::addcmul(sum, h.narrow(0, first_row, rows), norm.self.unsqueeze(1)) * norm.scale.unsqueeze(1);
}

Gcn::Gcn(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : in_(shape.in),
      out_(shape.out),
      bias_(weights.Filled(name + ".bias", {out_}, 0)),
      weight_(weights.Glorot(name + ".lin.weight", {out_, in_}, in_, out_)) {}

MessageNorm Gcn::NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                        at::ScalarType type, bool /*edge_rows*/) {
  const InEdges edges(0, offsets, sources, edge_weights, type);
  const Tensor factors = edges.InverseSqrtDegrees();
  // Rows beyond the offsets have no edge except their self-loop.
  const Tensor beyond = at::ones({rows - factors.size(0)}, factors.options());
  return edges.NormOf(factors, at::cat({factors, beyond}));
}

Tensor Gcn::InverseSqrtDegrees(const LayerWiseModel::Chunk& chunk, at::ScalarType type) {
  return InEdges(chunk.first_row, chunk.offsets, chunk.sources, chunk.edge_weights, type).InverseSqrtDegrees();
}

Tensor Gcn::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  if (AggregatesFirst(in, call.edges, weight_)) {
    return GraphConv(in.dense, call.edges, weight_, bias_, {}, call.activation);
  }
  return GraphConv(MultiplyRows(in, weight_), call.edges, {}, bias_, {}, call.activation);
}

Tensor Gcn::Project(const LayerWiseModel::InputRows& rows) const {
  return ProjectsNothing() ? DenseRows(rows, weight_) : MultiplyRows(rows, weight_);
}

Tensor Gcn::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const InEdges edges(chunk.first_row, chunk.offsets, chunk.sources, chunk.edge_weights, projected.scalar_type());
  const Tensor own = chunk.inverse_sqrt_degrees.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  const MessageNorm norm = edges.NormOf(own, chunk.inverse_sqrt_degrees);
  const Tensor out = Aggregate(projected, chunk.first_row, chunk.offsets, chunk.sources, norm);
  return ProjectsNothing() ? LinearRows(out, weight_, bias_) : out + bias_;
}

}  // namespace

const ConvolutionKind kGcnConvolution{.architecture = spec::Architecture::kGcn,
                                      .make = &MakeConvolution<Gcn>,
                                      .norm = &Gcn::NormOf,
                                      .inverse_sqrt_degrees = &Gcn::InverseSqrtDegrees,
                                      .cost = &Gcn::Cost};

// GraphSAGE: h_i' = W_l mean over edges (j, i) of h_j + b + W_r h_i. The max aggregator replaces the mean by the
// elementwise max, which is 0 without edges.
// Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", as PyG's SAGEConv(aggr="mean")
// and SAGEConv(aggr="max").

namespace {

// GraphSAGE with the mean aggregator. Threads: the device thread.
class Sage final : public Convolution {
 public:
  // Draws weights with PyG's initialisers: uniform in +-1/sqrt(in), as torch.nn.Linear.
  Sage(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  // Makes a Sage, or a SageMax if the shape's aggregation is kMax.
  static std::unique_ptr<Convolution> Make(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override;
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  // Returns true if Project returns its input unchanged, because the input is no wider than both products
  // concatenated.
  bool ProjectsNothing() const { return in_ <= 2 * out_; }

  int64_t in_, out_;
  Linear left_;   // for the neighbours' mean
  Tensor right_;  // for the row itself
};

// GraphSAGE with the max aggregator. Threads: the device thread.
class SageMax final : public Convolution {
 public:
  // Draws and names weights as Sage does.
  SageMax(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  // Returns the rows unchanged: the max over neighbours comes before any product.
  Tensor Project(const LayerWiseModel::InputRows& rows) const override { return DenseRows(rows, left_.weight); }
  int64_t projected_width() const override { return in_; }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear left_;   // for the neighbours' maximum
  Tensor right_;  // for the row itself
};

Sage::Sage(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : in_(shape.in),
      out_(shape.out),
      left_(weights.MakeLinear(name + ".lin_l", in_, out_)),
      right_(weights.Uniform(name + ".lin_r.weight", {out_, in_}, 1 / std::sqrt(static_cast<double>(in_)))) {}

std::unique_ptr<Convolution> Sage::Make(WeightMaker& weights, const std::string& name, const ConvShape& shape) {
  if (shape.aggregation == spec::Aggregation::kMax) return std::make_unique<SageMax>(weights, name, shape);
  return std::make_unique<Sage>(weights, name, shape);
}

ConvCost Sage::Cost(const ConvShape& shape, const ConvRows& rows) {
  return shape.aggregation == spec::Aggregation::kMax ? SageMax::Cost(shape, rows)
                                                      : GraphConvCost(shape, rows, /*weights=*/2);
}

MessageNorm Sage::NormOf(const Tensor& offsets, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                         int64_t /*rows*/, at::ScalarType type, bool /*edge_rows*/) {
  return {.weights = {}, .self = {}, .scale = MeanScale(offsets, type)};
}

Tensor Sage::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const ConvEdges& edges = call.edges;
  if (AggregatesFirst(in, edges, left_.weight)) {
    return GraphConv(in.dense, edges, at::cat({left_.weight, right_}, 1), left_.bias, {}, call.activation);
  }
  const Tensor own = MultiplyRows(FirstRows(in, edges.offsets.size(0) - 1), right_);
  return GraphConv(MultiplyRows(in, left_.weight), edges, {}, left_.bias, own, call.activation);
}

int64_t Sage::projected_width() const { return std::min(in_, 2 * out_); }

Tensor Sage::Project(const LayerWiseModel::InputRows& rows) const {
  if (ProjectsNothing()) return DenseRows(rows, left_.weight);
  return MultiplyRows(rows, at::cat({left_.weight, right_}));
}

Tensor Sage::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  if (ProjectsNothing()) {
    const Tensor mean = SegmentMean(projected, chunk.offsets, chunk.sources);
    return left_(mean) + LinearRows(own, right_);
  }
  const Tensor mean = SegmentMean(projected.narrow(1, 0, out_), chunk.offsets, chunk.sources);
  return mean + own.narrow(1, out_, out_) + left_.bias;
}

SageMax::SageMax(WeightMaker& weights, const std::string& name, const ConvShape& shape)
    : in_(shape.in),
      left_(weights.MakeLinear(name + ".lin_l", in_, shape.out)),
      right_(weights.Uniform(name + ".lin_r.weight", {shape.out, in_}, 1 / std::sqrt(static_cast<double>(in_)))) {}

// Autograd saves the rows, their maxima and the output. The backward pass holds the gradients of these three tensors,
// and the shares of equal maxima. The plain operators also gather a row for each edge, which is not counted.
ConvCost SageMax::Cost(const ConvShape& shape, const ConvRows& rows) {
  const auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  return {.parameters = 2 * in * out + out,
          .saved = rows.sources * in + rows.targets * (in + out),
          .backward = rows.targets * (2 * in + 2 * out) + (rows.first ? 0 : 2 * rows.sources * in) + 2 * in * out};
}

Tensor SageMax::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const Tensor rows = DenseRows(in, left_.weight);
  const Tensor largest = SegmentMax(rows, call.edges.offsets, call.edges.sources, call.edges.transpose);
  return Activate(left_(largest) + LinearRows(rows.narrow(0, 0, largest.size(0)), right_), call.activation);
}

Tensor SageMax::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  return left_(SegmentMax(projected, chunk.offsets, chunk.sources)) + LinearRows(own, right_);
}

}  // namespace

const ConvolutionKind kSageConvolution{.architecture = spec::Architecture::kSage,
                                       .make = &Sage::Make,
                                       .norm = &Sage::NormOf,
                                       .inverse_sqrt_degrees = nullptr,
                                       .cost = &Sage::Cost};

// GIN, and GINE for one large graph. GINE's messages read the edge rows.
//   GIN:  h_i' = mlp(h_i + sum over edges (j, i) of h_j)
//   GINE: h_i' = mlp(h_i + sum over edges (j, i) of relu(h_j + lin(e_ji)))
// Sources: Xu et al. 2019, "How powerful are graph neural networks?", as PyG's GINConv with eps = 0; Hu et al. 2020,
// "Strategies for pre-training graph neural networks", as PyG's GINEConv(edge_dim=...) with eps = 0.

namespace {

// Threads: the device thread.
class Gin final : public Convolution {
 public:
  // The MLP has one hidden layer as wide as the output. Weights are drawn as in torch.nn.Linear.
  Gin(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  Tensor Project(const LayerWiseModel::InputRows& rows) const override;
  int64_t projected_width() const override { return std::min(in_, out_); }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  Linear first_, second_;
};

// Threads: the device thread.
class Gine final : public Convolution {
 public:
  // The MLP has the shape and the names of Gin's. `lin` maps an edge row to the channels of a node. Weights are drawn
  // as in torch.nn.Linear.
  Gine(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  static MessageNorm NormOf(const Tensor& offsets, const Tensor& sources, const Tensor& edge_weights, int64_t rows,
                            at::ScalarType type, bool edge_rows);
  static ConvCost Cost(const ConvShape& shape, const ConvRows& rows);

  Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const override;
  // Returns the rows unchanged: ReLU comes before any product.
  Tensor Project(const LayerWiseModel::InputRows& rows) const override { return DenseRows(rows, first_.weight); }
  int64_t projected_width() const override { return in_; }
  Tensor Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const override;

 private:
  int64_t in_;
  Linear first_, second_, edge_;
};

Gin::Gin(WeightMaker& weights, const std::string& name, const ConvShape& shape) : in_(shape.in), out_(shape.out) {
  const GinNames names = GinNamesOf(shape);
  // GINConv keeps an untrained eps as a buffer. It is 0, and takes no part in the sum.
  weights.Buffer(name + ".eps", {1}, 0);
  first_ = weights.MakeLinear(name + names.first, in_, out_);
  second_ = weights.MakeLinear(name + names.second, out_, out_);
}

MessageNorm Gin::NormOf(const Tensor& offsets, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                        int64_t /*rows*/, at::ScalarType type, bool /*edge_rows*/) {
  return {.weights = {}, .self = at::ones({offsets.size(0) - 1}, offsets.options().dtype(type)), .scale = {}};
}

ConvCost Gin::Cost(const ConvShape& shape, const ConvRows& rows) {
  ConvCost cost = GraphConvCost(shape, rows, /*weights=*/1);
  ConvShape second = shape;
  second.in = shape.out;
  const ConvCost of_second =
      GraphConvCost(second, {.sources = rows.targets, .targets = rows.targets, .edges = 0, .first = false}, 1);
  cost.parameters += of_second.parameters;
  cost.saved += of_second.saved;
  cost.backward = std::max(cost.backward, of_second.backward) + rows.targets * static_cast<double>(shape.out);
  return cost;
}

Tensor Gin::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  ConvActivation within = call.activation;
  within.relu = true;
  within.p = 0;
  const Tensor hidden = AggregatesFirst(in, call.edges, first_.weight)
                            ? GraphConv(in.dense, call.edges, first_.weight, first_.bias, {}, within)
                            : GraphConv(MultiplyRows(in, first_.weight), call.edges, {}, first_.bias, {}, within);
  return GraphConv(hidden, {}, second_.weight, second_.bias, {}, call.activation);
}

Tensor Gin::Project(const LayerWiseModel::InputRows& rows) const {
  return ProjectsNothing() ? DenseRows(rows, first_.weight) : MultiplyRows(rows, first_.weight);
}

Tensor Gin::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor own = projected.narrow(0, chunk.first_row, chunk.offsets.size(0) - 1);
  const Tensor sum = SegmentSum(projected, chunk.offsets, chunk.sources, {}) + own;
  return second_((ProjectsNothing() ? first_(sum) : sum + first_.bias).relu());
}

Gine::Gine(WeightMaker& weights, const std::string& name, const ConvShape& shape) : in_(shape.in) {
  const GinNames names = GinNamesOf(shape);
  // GINEConv keeps an untrained eps as a buffer. It is 0, and takes no part in the sum.
  weights.Buffer(name + ".eps", {1}, 0);
  first_ = weights.MakeLinear(name + names.first, in_, shape.out);
  second_ = weights.MakeLinear(name + names.second, shape.out, shape.out);
  edge_ = weights.MakeLinear(name + ".lin", shape.edge_channels, in_);
}

MessageNorm Gine::NormOf(const Tensor& /*offsets*/, const Tensor& /*sources*/, const Tensor& /*edge_weights*/,
                         int64_t /*rows*/, at::ScalarType /*type*/, bool /*edge_rows*/) {
  return {};
}

// Autograd saves the edge rows, the sums, and what the MLP makes of the sums. The backward pass holds the gradients
// of all of these tensors; the gradient of the sums has as many rows as the input (nn/ops/gine_layer.h). The plain
// operators also make a message for each edge.
ConvCost Gine::Cost(const ConvShape& shape, const ConvRows& rows) {
  const auto in = static_cast<double>(shape.in), edge = static_cast<double>(shape.edge_channels);
  ConvShape first = shape, second = shape;
  first.edge_channels = second.edge_channels = 0;
  second.in = shape.out;
  const ConvRows of_rows{.sources = rows.targets, .targets = rows.targets, .edges = 0, .first = false};
  const ConvCost one = GraphConvCost(first, of_rows, 1), two = GraphConvCost(second, of_rows, 1);
  return {
      .parameters = one.parameters + two.parameters + edge * in + in,
      .saved = 2 * rows.edges * in + one.saved + two.saved,
      .backward = std::max(one.backward, two.backward) + rows.edges * in + (rows.first ? 1 : 2) * rows.sources * in};
}

Tensor Gine::Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const {
  const Tensor x = DenseRows(in, first_.weight);
  const Tensor sum = EdgeSum(x, {.offsets = call.edges.offsets,
                                 .sources = call.edges.sources,
                                 .transpose = call.edges.transpose,
                                 .rows = LinearRows(call.edge_rows, edge_.weight, edge_.bias),
                                 .code = call.edge_code});
  ConvActivation within = call.activation;
  within.relu = true;
  within.p = 0;
  const Tensor hidden = GraphConv(sum, {}, first_.weight, first_.bias, {}, within);
  return GraphConv(hidden, {}, second_.weight, second_.bias, {}, call.activation);
}

Tensor Gine::Combine(const Tensor& projected, const LayerWiseModel::Chunk& chunk) const {
  const Tensor sum = EdgeSum(projected, {.offsets = chunk.offsets,
                                         .sources = chunk.sources,
                                         .transpose = {},
                                         .rows = LinearRows(chunk.edge_features, edge_.weight, edge_.bias),
                                         .code = chunk.edge_code,
                                         .first_row = chunk.first_row});
  return second_(first_(sum).relu());
}

}  // namespace

const ConvolutionKind kGinConvolution{.architecture = spec::Architecture::kGin,
                                      .make = &MakeConvolution<Gin>,
                                      .norm = &Gin::NormOf,
                                      .inverse_sqrt_degrees = nullptr,
                                      .cost = &Gin::Cost};
const ConvolutionKind kGineConvolution{.architecture = spec::Architecture::kGine,
                                       .make = &MakeConvolution<Gine>,
                                       .norm = &Gine::NormOf,
                                       .inverse_sqrt_degrees = nullptr,
                                       .cost = &Gine::Cost};

}  // namespace permafrost::nn
