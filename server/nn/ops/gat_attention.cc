#include "nn/ops/gat_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "nn/kernels/gat.h"
#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Sizes of a checked call.
struct GatCall {
  GatCall(const Tensor& left, const Tensor& right, const Tensor& attention, const OptionalTensor& edges,
          const OptionalTensor& self_edges, const Tensor& offsets, const Tensor& sources, int64_t heads_in,
          int64_t first_row)
      : heads(heads_in), targets(right.size(0)), columns(right.size(1)), entries(sources.numel()) {
    TORCH_CHECK(heads > 0 && right.dim() == 2 && left.dim() == 2 && left.size(1) == columns && columns % heads == 0 &&
                    attention.numel() == columns && first_row >= 0 && first_row + targets <= left.size(0),
                "gat_attention: left ", left.sizes(), ", right ", right.sizes(), " and attention ", attention.sizes(),
                " of ", heads, " heads do not match");
    TORCH_CHECK(offsets.numel() == targets + 1 && offsets.scalar_type() == at::kLong &&
                    sources.scalar_type() == at::kLong && offsets.is_contiguous() && sources.is_contiguous(),
                "gat_attention: offsets and sources must be contiguous int64, offsets [", targets + 1, "]");
    const int64_t* const starts = offsets.const_data_ptr<int64_t>();
    TORCH_CHECK(starts[0] == 0 && starts[targets] <= entries, "gat_attention: offsets are ", starts[0], "..",
                starts[targets], ", edges ", entries);
    TORCH_CHECK(edges.has_value() == self_edges.has_value() &&
                    (!edges || (edges->size(0) == entries && self_edges->size(0) == targets)),
                "gat_attention: rows of edges must be given with those of self-loops, one each");
  }
  int64_t slots() const { return entries + targets; }
  // Returns how many chunks of rows a thread takes at a time, from the number of multiplications.
  int64_t grain(const RowChunks& chunks) const { return ChunkGrain(chunks, 4 * slots() * columns); }

  int64_t heads, targets, columns, entries;
};

// Holds the contiguous tensors that its GatRows points into.
template <class T>
struct GatInputs {
  GatInputs(const GatCall& call, const Tensor& left_in, const Tensor& right_in, const Tensor& attention_in,
            const OptionalTensor& edges_in, const OptionalTensor& self_edges_in, const Tensor& offsets,
            const Tensor& sources, const OptionalTensor& step, const OptionalTensor& row_keys_in, int64_t first_row,
            double slope, int64_t seed, int64_t layer, double p)
      : left(left_in.contiguous()),
        right(right_in.contiguous()),
        attention(attention_in.contiguous()),
        edges(edges_in ? edges_in->contiguous() : Tensor()),
        self_edges(self_edges_in ? self_edges_in->contiguous() : Tensor()),
        row_keys(row_keys_in && p > 0 ? row_keys_in->contiguous() : Tensor()) {
    TORCH_CHECK(p >= 0 && p < 1 && (p == 0 || step), "gat_attention: p: ", p, " is not in 0 <= p < 1, or without step");
    TORCH_CHECK(!row_keys.defined() || row_keys.numel() >= call.targets, "gat_attention: row_keys ", row_keys.sizes());
    const int64_t now = p > 0 ? step->const_data_ptr<int64_t>()[0] : 0;
    rows = {
        .left = Read<T>(left),
        .right = Read<T>(right),
        .attention = Read<T>(attention),
        .edges = DataOrNull<T>(edges),
        .self_edges = DataOrNull<T>(self_edges),
        .offsets = Read<int64_t>(offsets),
        .sources = Read<int64_t>(sources),
        .heads = call.heads,
        .width = call.columns / call.heads,
        .first_row = first_row,
        .slope = static_cast<T>(slope),
        .mask = p > 0 ? DropoutMask{DropoutKeyOf(DropoutSeed(seed, layer), now), DropoutThreshold(p)} : DropoutMask(),
        .kept = static_cast<T>(1 / (1 - p)),
        .row_keys = DataOrNull<int64_t>(row_keys)};
  }
  Tensor left, right, attention, edges, self_edges, row_keys;
  GatRows<T> rows;
};

// Returns y, and alpha [E + T, heads].
std::tuple<Tensor, Tensor> GatForwardCpu(const Tensor& left, const Tensor& right, const Tensor& attention,
                                         const OptionalTensor& edges, const OptionalTensor& self_edges,
                                         const Tensor& offsets, const Tensor& sources, const OptionalTensor& step,
                                         const OptionalTensor& row_keys, int64_t heads, int64_t first_row, double slope,
                                         int64_t seed, int64_t layer, double p) {
  const GatCall call(left, right, attention, edges, self_edges, offsets, sources, heads, first_row);
  Tensor y = at::empty({call.targets, call.columns}, left.options());
  // Places beyond the last slot stay 0, because an audit compares all values of two runs.
  Tensor alpha = at::zeros({call.slots(), heads}, left.options());
  const RowChunks chunks(call.targets, 1);
  AT_DISPATCH_FLOATING_TYPES(left.scalar_type(), "gat_attention", [&] {
    const GatInputs<scalar_t> in(call, left, right, attention, edges, self_edges, offsets, sources, step, row_keys,
                                 first_row, slope, seed, layer, p);
    scalar_t *const to_alpha = Write<scalar_t>(alpha), *const to = Write<scalar_t>(y);
    ForChunks(chunks, call.grain(chunks), [&](int64_t, int64_t begin, int64_t size) {
      GatForward<scalar_t>(in.rows, begin, begin + size, to_alpha, to);
    });
  });
  return {y, alpha};
}

// Gradients of left, right, attention, edge rows and self-loop rows. If the call has no edge rows, the last two are
// [0].
using GatGradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

GatGradients GatBackwardCpu(const Tensor& grad_in, const Tensor& alpha, const Tensor& left, const Tensor& right,
                            const Tensor& attention, const OptionalTensor& edges, const OptionalTensor& self_edges,
                            const Tensor& offsets, const Tensor& sources, const Tensor& out_offsets,
                            const Tensor& out_rows, const Tensor& out_edges, const OptionalTensor& step,
                            const OptionalTensor& row_keys, int64_t heads, double slope, int64_t seed, int64_t layer,
                            double p) {
  const GatCall call(left, right, attention, edges, self_edges, offsets, sources, heads, 0);
  TORCH_CHECK(out_offsets.numel() > left.size(0) && out_offsets.scalar_type() == at::kInt,
              "gat_attention_backward: the transpose must be of the rows of left or more, ", left.size(0));
  const Tensor grad = grad_in.contiguous();
  const auto type = left.options();
  Tensor gl = at::empty(left.sizes(), type), gr = at::empty(right.sizes(), type), ga = at::empty({call.columns}, type);
  Tensor ge = edges ? at::zeros(edges->sizes(), type) : at::empty({0}, type);
  Tensor gs = edges ? at::empty(self_edges->sizes(), type) : at::empty({0}, type);
  const RowChunks chunks(call.targets, call.columns), source_chunks(left.size(0), 1);
  const Tensor scores = at::empty({call.slots(), heads}, type), parts = at::zeros({chunks.count(), call.columns}, type);
  AT_DISPATCH_FLOATING_TYPES(left.scalar_type(), "gat_attention_backward", [&] {
    using T = scalar_t;
    const GatInputs<T> in(call, left, right, attention, edges, self_edges, offsets, sources, step, row_keys, 0, slope,
                          seed, layer, p);
    const T *const g = Read<T>(grad), *const a = Read<T>(alpha);
    const GatTargetGradients<T> to{.scores = Write<T>(scores),
                                   .right = Write<T>(gr),
                                   .edges = edges ? Write<T>(ge) : nullptr,
                                   .self_edges = edges ? Write<T>(gs) : nullptr,
                                   .attention = nullptr};
    ForChunks(chunks, call.grain(chunks), [&](int64_t c, int64_t begin, int64_t size) {
      GatTargetGradients<T> own = to;
      own.attention = Write<T>(parts) + c * call.columns;
      GatTargetGradient<T>(in.rows, a, g, begin, begin + size, own);
    });
    AddParts<T>(Read<T>(parts), call.columns, chunks.count(), call.columns, Write<T>(ga));
    const GatSources<T> from{.offsets = Read<int32_t>(out_offsets),
                             .rows = Read<int32_t>(out_rows),
                             .edges = Read<int32_t>(out_edges),
                             .targets = call.targets};
    ForChunks(source_chunks, call.grain(source_chunks), [&](int64_t, int64_t begin, int64_t size) {
      GatSourceGradient<T>(in.rows, from, a, Read<T>(scores), g, begin, begin + size, Write<T>(gl));
    });
  });
  return {gl, gr, ga, ge, gs};
}

constexpr Operator<GatForwardCpu> kGatForward{
    "gat_attention(Tensor left, Tensor right, Tensor attention, Tensor? edges, Tensor? self_edges, Tensor offsets, "
    "Tensor sources, Tensor? step, Tensor? row_keys, int heads, int first_row, float slope, int seed, int layer, "
    "float p) -> (Tensor, Tensor)"};
constexpr Operator<GatBackwardCpu> kGatBackward{
    "gat_attention_backward(Tensor grad, Tensor alpha, Tensor left, Tensor right, Tensor attention, Tensor? edges, "
    "Tensor? self_edges, Tensor offsets, Tensor sources, Tensor out_offsets, Tensor out_rows, Tensor out_edges, "
    "Tensor? step, Tensor? row_keys, int heads, float slope, int seed, int layer, float p) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"};

class GatFunction : public torch::autograd::Function<GatFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& left, const Tensor& right,
                        const Tensor& attention, const OptionalTensor& rows, const OptionalTensor& self_rows,
                        const GatEdges& edges, const GatOptions& o) {
    const auto seed = static_cast<int64_t>(o.key.seed);
    auto [y, alpha] =
        kGatForward(left, right, attention, rows, self_rows, edges.offsets, edges.sources, IfDefined(o.step),
                    IfDefined(o.row_keys), o.heads, o.first_row, o.slope, seed, o.key.layer, o.p);
    const CsrTranspose& t = edges.transpose;
    context->save_for_backward({alpha, left, right, attention, rows.value_or(Tensor()), self_rows.value_or(Tensor()),
                                edges.offsets, edges.sources, t.offsets, t.rows, t.edges, o.step, o.row_keys});
    auto& data = context->saved_data;
    data["heads"] = o.heads;
    data["slope"] = o.slope;
    data["seed"] = seed;
    data["layer"] = o.key.layer;
    data["p"] = o.p;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto& data = context->saved_data;
    auto [gl, gr, ga, ge, gs] =
        kGatBackward(grads[0], s[0], s[1], s[2], s[3], IfDefined(s[4]), IfDefined(s[5]), s[6], s[7], s[8], s[9], s[10],
                     IfDefined(s[11]), IfDefined(s[12]), data["heads"].toInt(), data["slope"].toDouble(),
                     data["seed"].toInt(), data["layer"].toInt(), data["p"].toDouble());
    const bool edges = s[4].defined();
    return {gl, gr, ga.view(s[3].sizes()), edges ? ge : Tensor(), edges ? gs : Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kGatForward.Register(library);
  kGatBackward.Register(library);
}

Tensor GatAttention(const Tensor& left, const Tensor& right, const Tensor& attention, const GatEdges& edges,
                    const GatOptions& options) {
  if (!IsFused(left)) return GatAttentionPlain(left, right, attention, edges, options);
  return GatFunction::apply(left, right, attention, IfDefined(edges.rows), IfDefined(edges.self_rows), edges, options);
}

namespace {

constexpr int64_t kSlotStride = 0x9e3779b1;

// Returns the scores [rows, heads] of z [rows, W].
Tensor Scores(const Tensor& z, const Tensor& attention, const GatOptions& o) {
  const int64_t channels = z.size(1) / o.heads;
  return (at::leaky_relu(z, o.slope) * attention).view({z.size(0), o.heads, channels}).sum(-1);
}

// Multiplies each head's columns of x, [rows, W], by the head's value in of_heads, [rows, heads].
Tensor TimesHeads(const Tensor& x, const Tensor& of_heads) {
  const int64_t rows = x.size(0), heads = of_heads.size(1);
  return (x.view({rows, heads, x.size(1) / heads}) * of_heads.unsqueeze(2)).view(x.sizes());
}

}  // namespace

Tensor GatAttentionPlain(const Tensor& left, const Tensor& right, const Tensor& attention, const GatEdges& edges,
                         const GatOptions& o) {
  const int64_t targets = right.size(0), count = edges.sources.size(0);
  const auto floats = left.options();
  const Tensor row = SegmentOfEntry(edges.offsets, count);  // `targets` for padding
  const Tensor in_row = row.lt(targets), loop = at::bitwise_and(in_row, edges.sources.eq(row + o.first_row));
  const Tensor real = at::bitwise_xor(in_row, loop).unsqueeze(1);
  const Tensor sources = edges.sources.clamp_max(left.size(0) - 1), to = row.clamp_max(targets - 1);
  const Tensor own = left.narrow(0, o.first_row, targets);
  const Tensor from = SelectRows(left, sources);
  Tensor z = from + SelectRows(right, to), self_z = own + right;
  if (edges.rows.defined()) {
    z = z + edges.rows;
    self_z = self_z + edges.self_rows;
  }
  const Tensor zero = at::zeros({}, floats), self_score = Scores(self_z, attention, o);
  const Tensor score =
      at::where(real, Scores(z, attention, o), at::full({}, -std::numeric_limits<double>::infinity(), floats));
  // Subtracts each row's largest score. The subtraction changes no quotient of the softmax, and passes no gradient.
  const Tensor largest =
      self_score.detach().scatter_reduce(0, to.unsqueeze(1).expand({count, o.heads}), score.detach(), "amax");
  const Tensor self_weight = (self_score - largest).exp();
  const Tensor weight = at::where(real, (score - SelectRows(largest, to)).exp(), zero);
  const Tensor total = AddRows(self_weight, to, weight);
  Tensor self_alpha = self_weight / total, alpha = weight / SelectRows(total, to);
  if (o.p > 0) {
    const Tensor keys = (o.row_keys.defined() ? o.row_keys.narrow(0, 0, targets)
                                              : at::arange(targets, edges.offsets.options()) + o.first_row) *
                        kSlotStride;
    const Tensor slot = at::arange(count, edges.offsets.options()) - SelectRows(edges.offsets, to) + 1;
    self_alpha = Dropout(self_alpha, o.step, o.key, o.p, keys);
    alpha = Dropout(alpha, o.step, o.key, o.p, SelectRows(keys, to) + slot);
  }
  return AddRows(TimesHeads(own, self_alpha), to, TimesHeads(from, alpha));
}

}  // namespace permafrost::nn
