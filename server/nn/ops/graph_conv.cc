#include "nn/ops/graph_conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "nn/kernels/linear.h"
#include "nn/kernels/norm.h"
#include "nn/kernels/segments.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// The optional tensors of a call.
struct ConvOptions {
  OptionalTensor offsets, sources, weights, self, scale, weight;
};

// The sizes of a checked call.
struct ConvSizes {
  // x_rows, x_width: the sizes of x.
  ConvSizes(int64_t x_rows, int64_t x_width, const ConvOptions& o, const Tensor& bias) : width(x_width) {
    TORCH_CHECK(o.offsets || o.weight, "graph_conv: neither edges nor weight: nothing to do");
    rows = o.offsets ? o.offsets->numel() - 1 : x_rows;
    in = o.weight ? o.weight->size(1) : width;
    out = bias.numel();
    own = o.offsets && in == 2 * width;
    TORCH_CHECK(rows >= 0 && rows <= x_rows && (own || in == width) && (o.weight ? o.weight->size(0) : in) == out,
                "graph_conv: x [", x_rows, ", ", x_width, "], ", rows, " rows, weight ",
                o.weight ? o.weight->sizes() : at::IntArrayRef(), " and bias ", bias.sizes(), " do not match");
    if (o.offsets) {
      TORCH_CHECK(o.sources && o.offsets->scalar_type() == at::kLong && o.sources->scalar_type() == at::kLong &&
                      o.offsets->is_contiguous() && o.sources->is_contiguous(),
                  "graph_conv: offsets and sources must be contiguous int64");
      const int64_t* const starts = o.offsets->const_data_ptr<int64_t>();
      TORCH_CHECK(starts[0] == 0 && starts[rows] <= o.sources->numel(), "graph_conv: offsets are ", starts[0], "..",
                  starts[rows], ", edges ", o.sources->numel());
      edges = o.sources->numel();
    }
    const auto check = [&](const OptionalTensor& t, int64_t size, const char* name) {
      TORCH_CHECK(!t || (t->scalar_type() == bias.scalar_type() && t->numel() == size && t->is_contiguous()),
                  "graph_conv: ", name, " must be a contiguous [", size, "] of x's type");
    };
    check(o.weights, edges, "weights");
    check(o.self, rows, "self");
    check(o.scale, rows, "scale");
  }
  // products() is the number of multiplications of one row. partial() is the number of values that a chunk adds up.
  int64_t products() const { return out * in; }
  int64_t partial(bool weight) const { return weight ? out * in + out : out; }

  int64_t rows, width, in, out, edges = 0;
  bool own;  // true if W multiplies [sum, x_i], false if the sum alone
};

// Returns the work of a region, counted in multiplications. Without a product, each gathered value counts as the
// multiplications that take as long.
int64_t WorkOf(const ConvSizes& s, bool weight) {
  constexpr int64_t kOfValue = kParallelProducts / kParallelGathers;
  return weight ? s.rows * s.products() : kOfValue * (s.rows + s.edges) * s.width;
}

// Returns y, and [sum, x_i] if a backward reads it, else [0].
std::tuple<Tensor, Tensor> GraphConvCpu(const Tensor& x_in, const OptionalTensor& offsets,
                                        const OptionalTensor& sources, const OptionalTensor& weights,
                                        const OptionalTensor& self, const OptionalTensor& scale,
                                        const OptionalTensor& weight, const Tensor& bias, const OptionalTensor& addend,
                                        bool relu, const OptionalTensor& step, const OptionalTensor& row_keys,
                                        int64_t seed, int64_t layer, double p, bool bfloat16) {
  const Tensor x = x_in.contiguous();
  const ConvOptions options{offsets, sources, weights, self, scale, weight};
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point() && x.scalar_type() == bias.scalar_type(),
              "graph_conv: x must be a floating [N, C] of bias's type, not ", x.toString(), x.sizes());
  const ConvSizes s(x.size(0), x.size(1), options, bias);
  const LinearWidths widths{s.in, s.out, ProductsOf(x, bfloat16)};
  TORCH_CHECK(p >= 0 && p < 1 && (p == 0 || (relu && step)), "graph_conv: p: ", p,
              " is not in 0 <= p < 1, or without relu or step");
  TORCH_CHECK(!addend || (!weight && addend->size(0) == s.rows && addend->size(1) == s.out && addend->is_contiguous()),
              "graph_conv: addend must be a contiguous [", s.rows, ", ", s.out, "], and there no weight");
  const DropoutMask mask{p > 0 ? DropoutKeyOf(DropoutSeed(seed, layer), step->const_data_ptr<int64_t>()[0]) : 0,
                         DropoutThreshold(p)};
  const int64_t* const keys = row_keys && p > 0 ? Read<int64_t>(*row_keys) : nullptr;
  Tensor y = at::empty({s.rows, s.out}, x.options());
  // Without a product, the sums are the rows of y themselves.
  Tensor in = at::empty({offsets && weight ? s.rows : 0, s.in}, x.options());
  const RowChunks chunks(s.rows, s.partial(weight.has_value()));
  const int64_t grain = ChunkGrain(chunks, WorkOf(s, weight.has_value()));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "graph_conv", [&] {
    using T = scalar_t;
    const SegmentRows<T> segments{.x = Read<T>(x),
                                  .stride = s.width,
                                  .width = s.width,
                                  .offsets = offsets ? Read<int64_t>(*offsets) : nullptr,
                                  .source = sources ? Read<int64_t>(*sources) : nullptr,
                                  .weights = DataOrNull<T>(weights),
                                  .self = DataOrNull<T>(self),
                                  .scale = DataOrNull<T>(scale)};
    Tensor packed;
    if (weight) {
      packed = at::empty({PackedSize<T>(s.in, s.out, widths.products)}, x.options());
      PackForward<T>(Read<T>(weight->contiguous()), s.out, s.in, widths.products, Write<T>(packed));
    }
    const T* const bias_values = Read<T>(bias);
    const T* const added = DataOrNull<T>(addend);
    T* const sums = !offsets ? nullptr : weight ? Write<T>(in) : Write<T>(y);
    const T* const from = offsets ? sums : Read<T>(x);
    T* const to = Write<T>(y);
    ForChunks(chunks, grain, [&](int64_t, int64_t begin, int64_t size) {
      const int64_t at = begin * s.out;
      if (offsets) {
        SumSegments<T>(segments, begin, begin + size, sums + begin * s.in, s.in);
        for (int64_t r = begin; s.own && r < begin + size; ++r) {
          std::copy_n(segments.x + r * s.width, s.width, sums + r * s.in + s.width);
        }
      }
      if (weight) {
        LinearForward<T>(widths, size, from + begin * s.in, Read<T>(packed), bias_values, relu, to + at);
      } else {
        AddBiasActivate<T>(from + at, bias_values, added == nullptr ? nullptr : added + at, relu, size, s.out, to + at);
      }
      if (p > 0) {
        DropRows<T>(mask, static_cast<T>(1 / (1 - p)), keys == nullptr ? nullptr : keys + begin, begin, size, s.out,
                    to + at, to + at);
      }
    });
  });
  return {y, in};
}

// Gradients of x ([0] if not wanted), weight ([0] if there is none), bias, and the sum (the value before bias and
// addend are added).
using GraphConvGradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// rows: [T, K], the rows that the weight multiplied; none without a weight. x_rows: N.
GraphConvGradients GraphConvBackwardCpu(const Tensor& grad_in, const OptionalTensor& rows, int64_t x_rows,
                                        int64_t x_width, const OptionalTensor& y, const OptionalTensor& offsets,
                                        const OptionalTensor& sources, const OptionalTensor& out_offsets,
                                        const OptionalTensor& out_rows, const OptionalTensor& out_edges,
                                        const OptionalTensor& weights, const OptionalTensor& self,
                                        const OptionalTensor& scale, const OptionalTensor& weight, const Tensor& bias,
                                        double p, bool needs_x, bool bfloat16) {
  const Tensor grad = grad_in.contiguous(), multiplied = rows ? rows->contiguous() : Tensor();
  const ConvSizes s(x_rows, x_width, {offsets, sources, weights, self, scale, weight}, bias);
  const LinearWidths widths{s.in, s.out, ProductsOf(grad, bfloat16)};
  TORCH_CHECK(!needs_x || !offsets ||
                  (out_offsets && out_rows && out_edges && out_offsets->numel() > x_rows &&
                   out_offsets->scalar_type() == at::kInt),
              "graph_conv_backward: the transpose must be of the rows of x or more, ", x_rows);
  const int64_t partial = s.partial(weight.has_value());
  const RowChunks chunks(s.rows, partial), x_chunks(x_rows, 1);
  const int64_t grain = ChunkGrain(chunks, WorkOf(s, weight.has_value()));
  const bool spreads = needs_x && offsets;  // true if gradients of the sums go back along the edges
  const auto type = grad.options();
  const auto empty = [&](bool there, int64_t size, int64_t columns) {
    return at::empty({there ? size : 0, columns}, type);
  };
  Tensor g = at::empty({s.rows, s.out}, type);
  Tensor gx = empty(needs_x, x_rows, s.width), gw = empty(weight.has_value(), s.out, s.in);
  Tensor gb = at::empty({s.out}, type);
  Tensor gin = empty(spreads && weight, s.rows, s.in);
  const int64_t most = chunks.count();
  const int64_t rows_of_chunk = s.rows / most + 1;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "graph_conv_backward", [&] {
    using T = scalar_t;
    const int64_t scratch_size = weight ? ProductScratch<T>(rows_of_chunk, widths.products) : 0;
    const Tensor parts = at::empty({most, partial}, type);
    const Tensor scratch = at::empty({most, scratch_size}, type);
    Tensor packed;
    if (weight && needs_x) {
      packed = at::empty({PackedSize<T>(s.out, s.in, widths.products)}, type);
      PackBackward<T>(Read<T>(weight->contiguous()), s.out, s.in, widths.products, Write<T>(packed));
    }
    const T* const in = weight ? Read<T>(multiplied) : nullptr;
    T* const to_in = !needs_x || !weight ? nullptr : spreads ? Write<T>(gin) : Write<T>(gx);
    ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
      const int64_t at = begin * s.out;
      T* const part = Write<T>(parts) + c * partial;
      ActivationGradient<T>(Read<T>(grad) + at, y ? Read<T>(*y) + at : nullptr, static_cast<T>(1 / (1 - p)), size,
                            s.out, Write<T>(g) + at, part + partial - s.out);
      if (!weight) return;
      LinearBackward<T>(widths, size, in + begin * s.in, Read<T>(g) + at, needs_x ? Read<T>(packed) : nullptr,
                        Write<T>(scratch) + c * scratch_size, to_in == nullptr ? nullptr : to_in + begin * s.in, part);
    });
    const auto add_share = [&](int64_t c) {
      const int64_t from = partial * c / most, until = partial * (c + 1) / most, weights_end = partial - s.out;
      const int64_t middle = std::clamp(weights_end, from, until);
      AddParts<T>(Read<T>(parts) + from, partial, most, middle - from, Write<T>(gw) + from);
      AddParts<T>(Read<T>(parts) + middle, partial, most, until - middle, Write<T>(gb) + middle - weights_end);
    };
    ForChunks(chunks, grain, [&](int64_t c, int64_t, int64_t) { add_share(c); });
    if (!spreads) return;
    const T* const sums = weight ? Read<T>(gin) : Read<T>(g);
    const SegmentGradient<T> gradient{.offsets = Read<int32_t>(*out_offsets),
                                      .rows = Read<int32_t>(*out_rows),
                                      .edges = Read<int32_t>(*out_edges),
                                      .targets = s.rows,
                                      .g = sums,
                                      .own = s.own ? sums + s.width : nullptr,
                                      .stride = s.in,
                                      .width = s.width,
                                      .weights = DataOrNull<T>(weights),
                                      .self = DataOrNull<T>(self),
                                      .scale = DataOrNull<T>(scale)};
    ForChunks(x_chunks, ChunkGrain(x_chunks, WorkOf(s, false)), [&](int64_t, int64_t begin, int64_t size) {
      SumGradient<T>(gradient, begin, begin + size, Write<T>(gx));
    });
  });
  return {gx, gw, gb, g};
}

constexpr Operator<GraphConvCpu> kGraphConv{
    "graph_conv(Tensor x, Tensor? offsets, Tensor? sources, Tensor? weights, Tensor? self, Tensor? scale, "
    "Tensor? weight, Tensor bias, Tensor? addend, bool relu, Tensor? step, Tensor? row_keys, int seed, int layer, "
    "float p, bool bfloat16) -> (Tensor, Tensor)"};
constexpr Operator<GraphConvBackwardCpu> kGraphConvBackward{
    "graph_conv_backward(Tensor grad, Tensor? rows, int x_rows, int x_width, Tensor? y, Tensor? offsets, "
    "Tensor? sources, Tensor? out_offsets, Tensor? out_rows, Tensor? out_edges, Tensor? weights, Tensor? self, "
    "Tensor? scale, Tensor? weight, Tensor bias, float p, bool needs_x, bool bfloat16) "
    "-> (Tensor, Tensor, Tensor, Tensor)"};

class GraphConvFunction : public torch::autograd::Function<GraphConvFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const OptionalTensor& weight,
                        const Tensor& bias, const OptionalTensor& addend, const ConvEdges& edges,
                        const ConvActivation& a) {
    const bool bfloat16 = weight && RoundsFactors(x);
    auto [y, in] =
        kGraphConv(x, IfDefined(edges.offsets), IfDefined(edges.sources), IfDefined(edges.weights),
                   IfDefined(edges.self), IfDefined(edges.scale), weight, bias, addend, a.relu, IfDefined(a.step),
                   IfDefined(a.row_keys), static_cast<int64_t>(a.key.seed), a.key.layer, a.p, bfloat16);
    const CsrTranspose& t = edges.transpose;
    const Tensor multiplied = !weight ? Tensor() : edges.offsets.defined() ? in : x;
    context->saved_data["x_rows"] = x.size(0);
    context->saved_data["x_width"] = x.size(1);
    context->save_for_backward({multiplied, a.relu ? y : Tensor(), edges.offsets, edges.sources, t.offsets, t.rows,
                                t.edges, edges.weights, edges.self, edges.scale, weight.value_or(Tensor()), bias});
    context->saved_data["p"] = a.p;
    context->saved_data["bfloat16"] = bfloat16;
    context->saved_data["addend"] = addend.has_value();
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto& data = context->saved_data;
    const bool needs_x = context->needs_input_grad(0);
    auto [gx, gw, gb, g] = kGraphConvBackward(
        grads[0], IfDefined(s[0]), data["x_rows"].toInt(), data["x_width"].toInt(), IfDefined(s[1]), IfDefined(s[2]),
        IfDefined(s[3]), IfDefined(s[4]), IfDefined(s[5]), IfDefined(s[6]), IfDefined(s[7]), IfDefined(s[8]),
        IfDefined(s[9]), IfDefined(s[10]), s[11], data["p"].toDouble(), needs_x, data["bfloat16"].toBool());
    return {needs_x ? gx : Tensor(),
            s[10].defined() ? gw : Tensor(),
            gb,
            data["addend"].toBool() ? g : Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kGraphConv.Register(library);
  kGraphConvBackward.Register(library);
}

Tensor GraphConv(const Tensor& x, const ConvEdges& edges, const Tensor& weight, const Tensor& bias,
                 const Tensor& addend, const ConvActivation& activation) {
  if (!IsFused(x)) return GraphConvPlain(x, edges, weight, bias, addend, activation);
  return GraphConvFunction::apply(x, IfDefined(weight), bias, IfDefined(addend), edges, activation);
}

namespace {

Tensor PlainSum(const Tensor& x, const ConvEdges& edges) {
  Tensor sum = SegmentSum(x, edges.offsets, edges.sources, edges.weights);
  if (edges.self.defined()) sum = at::addcmul(sum, x.narrow(0, 0, sum.size(0)), edges.self.unsqueeze(1));
  return edges.scale.defined() ? sum * edges.scale.unsqueeze(1) : sum;
}

}  // namespace

Tensor GraphConvPlain(const Tensor& x, const ConvEdges& edges, const Tensor& weight, const Tensor& bias,
                      const Tensor& addend, const ConvActivation& activation) {
  Tensor in = edges.offsets.defined() ? PlainSum(x, edges) : x;
  if (weight.defined() && weight.size(1) == 2 * x.size(1)) in = at::cat({in, x.narrow(0, 0, in.size(0))}, 1);
  Tensor y = weight.defined() ? LinearRows(in, weight, bias) : in + bias;
  if (addend.defined()) y = y + addend;
  if (!activation.relu) return y;
  const Tensor& keys = activation.row_keys;
  return Dropout(ReluRows(y), activation.step, activation.key, activation.p,
                 keys.defined() ? keys.narrow(0, 0, y.size(0)) : keys);
}

}  // namespace permafrost::nn
