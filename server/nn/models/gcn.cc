// GCN: h_i' = W sum over edges (j, i) and the self-loop (i, i) of w_ji / sqrt(d_j d_i) h_j + b, where d is the degree
// with the self-loop. Source: Kipf and Welling 2017, "Semi-supervised classification with graph convolutional
// networks", as PyG's GCNConv: a self-loop that is there keeps its weight, the others get 1.

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "nn/models/convolution.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Threads: the device thread.
class Gcn final : public Convolution {
 public:
  // Weights are drawn with PyG's initialisers: Glorot, bias 0.
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
  // Returns true if Project passes the input on as it is, because the input is no wider than the product.
  bool ProjectsNothing() const { return in_ <= out_; }

  int64_t in_, out_;
  Tensor bias_, weight_;
};

// The in-edges of rows first_row, first_row + 1, ... among all rows.
struct InEdges {
  InEdges(int64_t first_row, Tensor offsets_in, Tensor sources_in, const Tensor& weights_in, at::ScalarType type)
      : offsets(std::move(offsets_in)),
        sources(std::move(sources_in)),
        weights(weights_in.defined() ? weights_in.to(type) : Tensor()),
        options(offsets.options().dtype(type)),
        is_self_loop(sources.eq(SegmentOfEntry(offsets, sources.size(0)) + first_row)) {}

  // [rows] sum of a value for each edge.
  Tensor Sum(const Tensor& of_edge) const {
    const Tensor places = at::arange(sources.size(0), sources.options());
    return SegmentSum(of_edge.unsqueeze(1), offsets, places, Tensor()).squeeze(1);
  }
  Tensor Zero() const { return at::zeros({}, options); }
  Tensor Ones() const { return weights.defined() ? weights : at::ones({sources.size(0)}, options); }

  // Returns [rows]: the factor of the self-loop that every row has or is given. Each row counts 1, and each self-loop
  // that is there adds its weight less 1: one self-loop counts as its weight. Undefined: 1 for each.
  Tensor SelfLoops() const {
    if (!weights.defined()) return {};
    return Sum(at::where(is_self_loop, weights - 1, Zero())) + 1;
  }
  // [rows] degree^-1/2.
  Tensor InverseSqrtDegrees() const {
    const Tensor degrees = Sum(Ones() - is_self_loop.to(options.dtype())) + 1;
    return at::where(degrees.gt(0), degrees.rsqrt(), Zero());
  }
  // factors: InverseSqrtDegrees of these rows; of_all: of all rows. Self-loops are added by row, so that their edges
  // weigh nothing.
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

// [rows] sums over in-edges and self-loops of rows first_row, first_row + 1, ... of h.
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
  // Rows beyond have no edge but their self-loop.
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

}  // namespace permafrost::nn
