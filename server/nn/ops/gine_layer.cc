#include "nn/ops/gine_layer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/kernels/norm.h"
#include "nn/kernels/segments.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// The skeleton of fused layers on the CPU, forward and backward: aggregation, MLP, batch norm, ReLU and dropout, by
// chunks of rows. Layers differ in the aggregation, a class with these members:
//   void Sum(int64_t begin, int64_t end, T* sum) const;
//     writes rows [begin, end) of sum, [N, in]
//   void Gradient(int64_t chunk, int64_t begin, int64_t end, const T* g, T* gx) const;
//     writes rows [begin, end) of gx, given g = dL/dsum [N, in] of all real rows

struct LayerWeights {
  MlpWeights mlp;
  Tensor norm_weight, norm_bias;  // [D]
};

// The tensors that the forward pass saves for the backward: [N, ...] or [D].
struct LayerSaved {
  Tensor y, sum, hidden, product, mean, invstd;
};

// Computes sum, hidden and product of the real rows. Calls after_chunk(chunk, first row, rows) while a chunk is in
// cache.
template <class T, class Aggregation, class AfterChunk>
void ForwardRows(const Aggregation& aggregation, const MlpWeights& w, const RowChunks& chunks, int64_t rows,
                 const LayerSaved& to, const AfterChunk& after_chunk) {
  const MlpWidths widths = w.widths();
  const PackedMlp<T> packed = PackMlpForward<T>(w);
  const T *const b1 = Read<T>(w.b1), *const b2 = Read<T>(w.b2);
  T *const sum = Write<T>(to.sum), *const hidden = Write<T>(to.hidden), *const product = Write<T>(to.product);
  ForChunks(chunks, ChunkGrain(chunks, rows * w.products()), [&](int64_t c, int64_t begin, int64_t size) {
    aggregation.Sum(begin, begin + size, sum);
    MlpForward<T>(widths, size, sum + begin * widths.in, packed.first, b1, packed.second, b2,
                  hidden + begin * widths.hidden, product + begin * widths.out);
    after_chunk(c, begin, size);
  });
}

// The dropout behind a layer. A default-constructed LayerDropout drops nothing.
struct LayerDropout {
  DropoutMask mask;
  double p = 0;
  const int64_t* row_keys = nullptr;  // null: each row's own position
};

// The forward pass in training. It allocates every tensor of its result.
template <class T, class Aggregation>
LayerSaved ForwardLayer(const Aggregation& aggregation, const LayerWeights& w, int64_t all_rows, int64_t rows,
                        const Tensor& running_mean, const Tensor& running_var, const BatchNormOptions& norm,
                        const LayerDropout& dropout) {
  const MlpWidths widths = w.mlp.widths();
  const int64_t values = w.mlp.values();
  const auto options = w.mlp.w1.options();
  const LayerSaved to{at::empty({all_rows, widths.out}, options),
                      at::empty({all_rows, widths.in}, options),
                      at::empty({all_rows, widths.hidden}, options),
                      at::empty({all_rows, widths.out}, options),
                      at::empty({widths.out}, options),
                      at::empty({widths.out}, options)};
  const RowChunks chunks(rows, values);
  // Sized by the padded number of rows, so that the size does not depend on the value of real_rows.
  const Tensor moments = at::empty({RowChunks::CountOf(all_rows, values), 2, widths.out}, options);
  const T* const product = Read<T>(to.product);
  ForwardRows<T>(aggregation, w.mlp, chunks, rows, to, [&](int64_t c, int64_t begin, int64_t size) {
    T* const of = Write<T>(moments) + 2 * c * widths.out;
    ColumnMoments<T>(product + begin * widths.out, size, widths.out, of, of + widths.out);
  });
  const Tensor affine = CombineMoments<T, T>(chunks, rows, moments, w.norm_weight, w.norm_bias, running_mean,
                                             running_var, norm, to.mean, to.invstd);
  const T *const scale = Read<T>(affine), kept = static_cast<T>(1 / (1 - dropout.p));
  T* const y = Write<T>(to.y);
  ForChunks(chunks, ChunkGrain(chunks, rows * w.mlp.products()), [&](int64_t, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    ScaleShift<T>(product + at, size, widths.out, scale, scale + widths.out, /*relu=*/true, y + at);
    if (dropout.p == 0) return;
    const int64_t* const keys = dropout.row_keys == nullptr ? nullptr : dropout.row_keys + begin;
    DropRows<T>(dropout.mask, kept, keys, begin, size, widths.out, y + at, y + at);
  });
  // Sets padding rows to 0, because an audit compares all bytes of two runs.
  for (const Tensor& result : {to.y, to.sum, to.hidden, to.product}) ClearRows<T>(result, rows);
  return to;
}

// Evaluation. The norm's scale and shift are known beforehand, so one pass does everything.
template <class T, class Aggregation>
Tensor ForwardLayerEval(const Aggregation& aggregation, const MlpWeights& w, int64_t all_rows, int64_t rows,
                        const Tensor& scale, const Tensor& shift) {
  const MlpWidths widths = w.widths();
  const auto options = w.w1.options();
  LayerSaved to;
  to.y = at::empty({all_rows, widths.out}, options);
  to.sum = at::empty({all_rows, widths.in}, options);
  to.hidden = at::empty({all_rows, widths.hidden}, options);
  to.product = at::empty({all_rows, widths.out}, options);
  T* const y = Write<T>(to.y);
  ForwardRows<T>(aggregation, w, RowChunks(rows, w.values()), rows, to, [&](int64_t, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    ScaleShift<T>(Read<T>(to.product) + at, size, widths.out, Read<T>(scale), Read<T>(shift), /*relu=*/true, y + at);
  });
  ClearRows<T>(to.y, rows);
  return to.y;
}

struct LayerGradients {
  Tensor x;
  MlpWeights mlp;
  Tensor norm_weight, norm_bias;
};

// grad: [N, D]. When the function returns, aggregation.Gradient has run for every chunk.
template <class T, class Aggregation>
LayerGradients BackwardLayer(const Aggregation& aggregation, const Tensor& grad, const LayerSaved& saved,
                             const LayerWeights& w, int64_t rows, double p) {
  const MlpWidths widths = w.mlp.widths();
  const int64_t all_rows = saved.y.size(0), values = w.mlp.values();
  const auto options = w.mlp.w1.options();
  const LayerGradients to{at::empty({all_rows, widths.in}, options), w.mlp.EmptyLike(), at::empty_like(w.norm_weight),
                          at::empty_like(w.norm_bias)};
  const RowChunks chunks(rows, values);
  const int64_t grain = ChunkGrain(chunks, rows * w.mlp.products());
  const T *const g = Read<T>(grad), *const y = Read<T>(saved.y), *const z = Read<T>(saved.product);
  const T *const mean = Read<T>(saved.mean), kept = static_cast<T>(1 / (1 - p));

  const Tensor sums = at::empty({RowChunks::CountOf(all_rows, values), 2, widths.out}, options);
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    T* const of = Write<T>(sums) + 2 * c * widths.out;
    NormGradientSums<T>(g + at, y + at, z + at, mean, kept, size, widths.out, of, of + widths.out);
  });
  const Tensor combined =
      CombineNormSums<T, T>(chunks, rows, sums, w.norm_weight, saved.mean, saved.invstd, to.norm_weight, to.norm_bias);
  const T* const means = Read<T>(combined);

  const MlpBackwardChunks<T> mlp(w.mlp, all_rows);
  const Tensor product_gradient = at::empty({all_rows, widths.out}, options);
  const Tensor sum_gradient = at::empty({all_rows, widths.in}, options);
  T *const gz = Write<T>(product_gradient), *const gsum = Write<T>(sum_gradient);
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    NormGradient<T>(g + at, y + at, z + at, mean, kept, means + 2 * widths.out, means, means + widths.out, size,
                    widths.out, gz + at);
    mlp.Run(c, begin, size, Read<T>(saved.sum), Read<T>(saved.hidden), gz, gsum);
  });

  T* const gx = Write<T>(to.x);
  // No edge of a real row should end in padding. If one does, it passes no gradient.
  std::fill_n(gsum + rows * widths.in, (all_rows - rows) * widths.in, T(0));
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    aggregation.Gradient(c, begin, begin + size, gsum, gx);
    mlp.AddShare(c, chunks.count(), to.mlp);
  });
  std::fill_n(gx + rows * widths.in, (all_rows - rows) * widths.in, T(0));
  return to;
}

void CheckGine(const Tensor& x, const OptionalTensor& edge_rows, const OptionalTensor& code, int64_t edges,
               const MlpWeights& w) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "gine_layer: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(!edge_rows || (edge_rows->dim() == 2 && edge_rows->size(1) == x.size(1) &&
                             edge_rows->scalar_type() == x.scalar_type()),
              "gine_layer: edge rows must be [codes or E, ", x.size(1), "] of x's type, not ",
              edge_rows ? edge_rows->sizes() : at::IntArrayRef());
  TORCH_CHECK(!code || (edge_rows && code->scalar_type() == at::kInt && code->numel() == edges),
              "gine_layer: code must be [", edges, "] int32 of edge rows, not ",
              code ? code->sizes() : at::IntArrayRef());
  TORCH_CHECK(code || !edge_rows || edge_rows->size(0) == edges, "gine_layer: ", edge_rows ? edge_rows->size(0) : 0,
              " edge rows for ", edges, " edges");
  TORCH_CHECK(w.w1.size(1) == x.size(1) && w.w2.size(1) == w.w1.size(0) && w.b1.numel() == w.w1.size(0) &&
                  w.b2.numel() == w.w2.size(0),
              "gine_layer: weights ", w.w1.sizes(), " and ", w.w2.sizes(), " for ", x.size(1), " columns");
}

template <class T>
class GineAggregation {
 public:
  GineAggregation(const Tensor& x, const OptionalTensor& edge_rows, const OptionalTensor& code)
      : messages_{Read<T>(x), DataOrNull<T>(edge_rows), DataOrNull<int32_t>(code), x.size(1)},
        partial_(code ? edge_rows->numel() : 0) {}

  // Sets the arrays that Sum reads.
  void SetInEdges(const Tensor& offsets, const Tensor& source) {
    offsets_ = Read<int32_t>(offsets);
    source_ = Read<int64_t>(source);
  }
  // Sets the arrays of Gradient, which writes the gradient of edge rows to `ge`. If edges have codes, `ge` has one
  // part [codes, C] for each chunk. Otherwise `ge` is one tensor [E, C].
  void SetOutEdges(const Tensor& offsets, const Tensor& targets, const Tensor& edges, const Tensor& ge) {
    offsets_ = Read<int32_t>(offsets);
    targets_ = Read<int32_t>(targets);
    edges_ = Read<int32_t>(edges);
    ge_ = Write<T>(ge);
  }

  void Sum(int64_t begin, int64_t end, T* sum) const { GineSum(messages_, offsets_, source_, begin, end, sum); }
  void Gradient(int64_t chunk, int64_t begin, int64_t end, const T* g, T* gx) const {
    T* const ge = ge_ + chunk * partial_;
    std::fill_n(ge, partial_, T(0));
    GineGradient(messages_, offsets_, targets_, edges_, g, begin, end, gx, ge);
  }

 private:
  GineMessages<T> messages_;
  int64_t partial_;  // values of ge that each chunk sums; 0 if each edge has its own row
  const int32_t *offsets_ = nullptr, *targets_ = nullptr, *edges_ = nullptr;
  const int64_t* source_ = nullptr;
  T* ge_ = nullptr;
};

OptionalTensor Contiguous(const OptionalTensor& t) { return t ? OptionalTensor(t->contiguous()) : std::nullopt; }

using GineForwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

GineForwardResult GineForwardCpu(const Tensor& x_in, const OptionalTensor& edge_rows_in, const OptionalTensor& code_in,
                                 const Tensor& source_in, const Tensor& in_offsets, const Tensor& real_rows,
                                 const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
                                 const Tensor& norm_weight, const Tensor& norm_bias, Tensor& running_mean,
                                 Tensor& running_var, Tensor& batches, const Tensor& step,
                                 const OptionalTensor& row_keys_in, double momentum, double eps, int64_t seed,
                                 int64_t layer, double p, bool bfloat16) {
  const Tensor x = x_in.contiguous(), source = source_in.contiguous();
  const OptionalTensor edge_rows = Contiguous(edge_rows_in), code = Contiguous(code_in);
  const LayerWeights w{{w1.contiguous(), b1, w2.contiguous(), b2, ProductsOf(x, bfloat16)}, norm_weight, norm_bias};
  CheckGine(x, edge_rows, code, source.numel(), w.mlp);
  TORCH_CHECK(p >= 0 && p < 1, "gine_layer: p: ", p, " is not in 0 <= p < 1");
  const int64_t rows = RealRows(real_rows, x.size(0), "gine_layer");
  const OptionalTensor row_keys = Contiguous(row_keys_in);
  TORCH_CHECK(
      !row_keys || (row_keys->dim() == 1 && row_keys->size(0) == x.size(0) && row_keys->scalar_type() == at::kLong),
      "gine_layer: row_keys must be [", x.size(0), "] int64");
  const LayerDropout dropout{
      {DropoutKeyOf(DropoutSeed(seed, layer), step.const_data_ptr<int64_t>()[0]), DropoutThreshold(p)},
      p,
      row_keys ? Read<int64_t>(*row_keys) : nullptr};
  LayerSaved out;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gine_layer", [&] {
    GineAggregation<scalar_t> aggregation(x, edge_rows, code);
    aggregation.SetInEdges(in_offsets, source);
    out = ForwardLayer<scalar_t>(aggregation, w, x.size(0), rows, running_mean, running_var, {momentum, eps}, dropout);
  });
  const int64_t counted = collective::IsShared() ? MergedRows() : rows;
  if (counted >= kLeastNormRows) ++*batches.mutable_data_ptr<int64_t>();
  return {out.y, out.sum, out.hidden, out.product, out.mean, out.invstd};
}

Tensor GineEvalCpu(const Tensor& x_in, const OptionalTensor& edge_rows_in, const OptionalTensor& code_in,
                   const Tensor& source_in, const Tensor& in_offsets, const Tensor& real_rows, const Tensor& w1,
                   const Tensor& b1, const Tensor& w2, const Tensor& b2, const Tensor& scale, const Tensor& shift,
                   bool bfloat16) {
  const Tensor x = x_in.contiguous(), source = source_in.contiguous();
  const OptionalTensor edge_rows = Contiguous(edge_rows_in), code = Contiguous(code_in);
  const MlpWeights w{w1.contiguous(), b1, w2.contiguous(), b2, ProductsOf(x, bfloat16)};
  CheckGine(x, edge_rows, code, source.numel(), w);
  const int64_t rows = RealRows(real_rows, x.size(0), "gine_layer_eval");
  Tensor y;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gine_layer_eval", [&] {
    GineAggregation<scalar_t> aggregation(x, edge_rows, code);
    aggregation.SetInEdges(in_offsets, source);
    y = ForwardLayerEval<scalar_t>(aggregation, w, x.size(0), rows, scale, shift);
  });
  return y;
}

using GineBackwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

GineBackwardResult GineBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const OptionalTensor& edge_rows_in,
                                   const OptionalTensor& code_in, const Tensor& out_offsets, const Tensor& out_targets,
                                   const Tensor& out_edges, const Tensor& real_rows, const Tensor& w1, const Tensor& b1,
                                   const Tensor& w2, const Tensor& b2, const Tensor& norm_weight, const Tensor& y,
                                   const Tensor& sum, const Tensor& hidden, const Tensor& product, const Tensor& mean,
                                   const Tensor& invstd, double p, bool bfloat16) {
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const OptionalTensor edge_rows = Contiguous(edge_rows_in), code = Contiguous(code_in);
  const LayerWeights w{{w1.contiguous(), b1, w2.contiguous(), b2, ProductsOf(x, bfloat16)}, norm_weight, norm_weight};
  const int64_t rows = RealRows(real_rows, x.size(0), "gine_layer_backward");
  const RowChunks chunks(rows, w.mlp.values());
  const int64_t partial = code ? edge_rows->numel() : 0;
  Tensor ge = code        ? at::empty({RowChunks::CountOf(x.size(0), w.mlp.values()), partial}, x.options())
              : edge_rows ? at::zeros_like(*edge_rows)
                          : at::empty({0}, x.options());
  LayerGradients g;
  Tensor ge_sum = ge;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gine_layer_backward", [&] {
    GineAggregation<scalar_t> aggregation(x, edge_rows, code);
    aggregation.SetOutEdges(out_offsets, out_targets, out_edges, ge);
    g = BackwardLayer<scalar_t>(aggregation, grad, {y, sum, hidden, product, mean, invstd}, w, rows, p);
    if (code) {
      ge_sum = at::empty_like(*edge_rows);
      AddParts<scalar_t>(Read<scalar_t>(ge), partial, chunks.count(), partial, Write<scalar_t>(ge_sum));
    }
  });
  return {g.x, ge_sum, g.mlp.w1, g.mlp.b1, g.mlp.w2, g.mlp.b2, g.norm_weight, g.norm_bias};
}

constexpr Operator<GineForwardCpu> kGineForward{
    "gine_layer(Tensor x, Tensor? edge_rows, Tensor? code, Tensor source, Tensor in_offsets, Tensor real_rows, "
    "Tensor w1, Tensor b1, Tensor w2, Tensor b2, Tensor norm_weight, Tensor norm_bias, Tensor(a!) running_mean, "
    "Tensor(b!) running_var, Tensor(c!) batches, Tensor step, Tensor? row_keys, float momentum, float eps, int seed, "
    "int layer, "
    "float p, bool bfloat16) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"};
constexpr Operator<GineBackwardCpu> kGineBackward{
    "gine_layer_backward(Tensor grad, Tensor x, Tensor? edge_rows, Tensor? code, Tensor out_offsets, "
    "Tensor out_targets, Tensor out_edges, Tensor real_rows, Tensor w1, Tensor b1, Tensor w2, Tensor b2, "
    "Tensor norm_weight, Tensor y, Tensor sum, Tensor hidden, Tensor product, Tensor mean, Tensor invstd, float p, "
    "bool bfloat16) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"};
constexpr Operator<GineEvalCpu> kGineEval{
    "gine_layer_eval(Tensor x, Tensor? edge_rows, Tensor? code, Tensor source, Tensor in_offsets, Tensor real_rows, "
    "Tensor w1, Tensor b1, Tensor w2, Tensor b2, Tensor scale, Tensor shift, bool bfloat16) "
    "-> Tensor"};

class GineLayerFunction : public torch::autograd::Function<GineLayerFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const OptionalTensor& edge_rows,
                        const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
                        const Tensor& norm_weight, const Tensor& norm_bias, const OptionalTensor& code,
                        const GineEdges& edges, const Tensor& real_rows, const GineWeights& weights,
                        const GineDropout& dropout, const BatchNormOptions& norm) {
    const bool bfloat16 = RoundsFactors(x);
    auto [y, sum, hidden, product, mean, invstd] = kGineForward(
        x, edge_rows, code, edges.source, edges.index.in_offsets, real_rows, w1, b1, w2, b2, norm_weight, norm_bias,
        weights.running_mean, weights.running_var, weights.batches_tracked, dropout.step, IfDefined(dropout.row_keys),
        norm.momentum, norm.eps, static_cast<int64_t>(dropout.key.seed), dropout.key.layer, dropout.p, bfloat16);
    context->save_for_backward({x, edge_rows.value_or(Tensor()), code.value_or(Tensor()), edges.index.out_offsets,
                                edges.index.out_targets, edges.index.out_edges, real_rows, w1, b1, w2, b2, norm_weight,
                                y, sum, hidden, product, mean, invstd});
    context->saved_data["p"] = dropout.p;
    context->saved_data["bfloat16"] = bfloat16;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto [gx, ge, gw1, gb1, gw2, gb2, gnw, gnb] =
        kGineBackward(grads[0], s[0], IfDefined(s[1]), IfDefined(s[2]), s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10],
                      s[11], s[12], s[13], s[14], s[15], s[16], s[17], context->saved_data["p"].toDouble(),
                      context->saved_data["bfloat16"].toBool());
    return {gx,       s[1].defined() ? ge : Tensor(),
            gw1,      gb1,
            gw2,      gb2,
            gnw,      gnb,
            Tensor(), Tensor(),
            Tensor(), Tensor(),
            Tensor(), Tensor()};
  }
};

Tensor Product(const Tensor& x, const GineEdges& edges, const GineWeights& w) {
  return LinearRows(ReluRows(LinearRows(SumGineMessages(x, edges), w.w1, w.b1)), w.w2, w.b2);
}

void CheckEdgeSum(const Tensor& x, const Tensor& rows, const OptionalTensor& code, const Tensor& offsets,
                  const Tensor& sources, int64_t first_row) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "edge_sum: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong && sources.dim() == 1 &&
                  sources.scalar_type() == at::kLong,
              "edge_sum: offsets and sources must be [T + 1] and [E] int64, not ", offsets.toString(), offsets.sizes(),
              " and ", sources.toString(), sources.sizes());
  TORCH_CHECK(first_row >= 0 && first_row + offsets.numel() - 1 <= x.size(0), "edge_sum: ", offsets.numel() - 1,
              " rows from ", first_row, " on of ", x.size(0));
  TORCH_CHECK(rows.dim() == 2 && rows.size(1) == x.size(1) && rows.scalar_type() == x.scalar_type(),
              "edge_sum: rows must be [codes or E, ", x.size(1), "] of x's type, not ", rows.toString(), rows.sizes());
  TORCH_CHECK(
      code ? code->scalar_type() == at::kInt && code->numel() == sources.numel() : rows.size(0) == sources.numel(),
      "edge_sum: ", code ? code->numel() : rows.size(0), " rows or codes for ", sources.numel(), " edges");
}

Tensor EdgeSumCpu(const Tensor& x_in, const Tensor& rows_in, const OptionalTensor& code_in, const Tensor& offsets_in,
                  const Tensor& sources_in, int64_t first_row) {
  CheckEdgeSum(x_in, rows_in, code_in, offsets_in, sources_in, first_row);
  const Tensor x = x_in.contiguous(), rows = rows_in.contiguous(), offsets = offsets_in.to(at::kInt).contiguous();
  const OptionalTensor code = code_in ? OptionalTensor(code_in->contiguous()) : std::nullopt;
  // The kernel begins sum i with row i of x, counted from `first_row`, so sources are counted from `first_row` too.
  const Tensor sources = first_row == 0 ? sources_in.contiguous() : sources_in - first_row;
  const int64_t targets = offsets.numel() - 1, width = x.size(1);
  Tensor sum = at::empty({targets, width}, x.options());
  const RowChunks chunks(targets, 1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "edge_sum", [&] {
    const GineMessages<scalar_t> messages{.x = Read<scalar_t>(x) + first_row * width,
                                          .edges = Read<scalar_t>(rows),
                                          .code = DataOrNull<int32_t>(code),
                                          .width = width};
    scalar_t* const to = Write<scalar_t>(sum);
    ForChunks(chunks, ChunkGrain(chunks, (sources.numel() + targets) * width, kParallelGathers),
              [&](int64_t, int64_t begin, int64_t n) {
                GineSum<scalar_t>(messages, Read<int32_t>(offsets), Read<int64_t>(sources), begin, begin + n, to);
              });
  });
  return sum;
}

// Returns the gradients of x and of the edge rows.
std::tuple<Tensor, Tensor> EdgeSumBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& rows_in,
                                              const OptionalTensor& code_in, const Tensor& out_offsets,
                                              const Tensor& out_rows, const Tensor& out_edges) {
  const Tensor x = x_in.contiguous(), rows = rows_in.contiguous();
  const OptionalTensor code = code_in ? OptionalTensor(code_in->contiguous()) : std::nullopt;
  const int64_t nodes = x.size(0), width = x.size(1);
  TORCH_CHECK(out_offsets.numel() > nodes && out_offsets.scalar_type() == at::kInt,
              "edge_sum_backward: the transpose must be of the rows of x or more, ", nodes);
  // Rows without a sum have gradient 0. The transpose may name rows without a sum, so `grad` has at least as many
  // rows as the transpose.
  const int64_t named = std::max(nodes, out_offsets.numel() - 1);
  Tensor grad = at::zeros({named, width}, x.options());
  grad.narrow(0, 0, grad_in.size(0)).copy_(grad_in);
  const int64_t partial = code ? rows.numel() : 0;
  const RowChunks chunks(nodes, std::max<int64_t>(1, partial));
  Tensor gx = at::empty({nodes, width}, x.options());
  // No row owns a padding edge, so the gradients of padding edges stay 0.
  const Tensor ge = code ? at::zeros({chunks.count(), partial}, x.options()) : at::zeros_like(rows);
  Tensor ge_sum = ge;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "edge_sum_backward", [&] {
    const GineMessages<scalar_t> messages{
        .x = Read<scalar_t>(x), .edges = Read<scalar_t>(rows), .code = DataOrNull<int32_t>(code), .width = width};
    const scalar_t* const g = Read<scalar_t>(grad);
    scalar_t *const to = Write<scalar_t>(gx), *const to_edges = Write<scalar_t>(ge);
    ForChunks(chunks, ChunkGrain(chunks, (out_edges.numel() + nodes) * width, kParallelGathers),
              [&](int64_t c, int64_t begin, int64_t n) {
                GineGradient<scalar_t>(messages, Read<int32_t>(out_offsets), Read<int32_t>(out_rows),
                                       Read<int32_t>(out_edges), g, begin, begin + n, to, to_edges + c * partial);
              });
    if (code) {
      ge_sum = at::empty_like(rows);
      AddParts<scalar_t>(Read<scalar_t>(ge), partial, chunks.count(), partial, Write<scalar_t>(ge_sum));
    }
  });
  return {gx, ge_sum};
}

constexpr Operator<EdgeSumCpu> kEdgeSum{
    "edge_sum(Tensor x, Tensor rows, Tensor? code, Tensor offsets, Tensor sources, int first_row) -> Tensor"};
constexpr Operator<EdgeSumBackwardCpu> kEdgeSumBackward{
    "edge_sum_backward(Tensor grad, Tensor x, Tensor rows, Tensor? code, Tensor out_offsets, Tensor out_rows, "
    "Tensor out_edges) -> (Tensor, Tensor)"};

class EdgeSumFunction : public torch::autograd::Function<EdgeSumFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& rows,
                        const SummedEdges& edges) {
    context->save_for_backward(
        {x, rows, edges.code, edges.transpose.offsets, edges.transpose.rows, edges.transpose.edges});
    return kEdgeSum(x, rows, IfDefined(edges.code), edges.offsets, edges.sources, edges.first_row);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto [gx, ge] = kEdgeSumBackward(grads[0], s[0], s[1], IfDefined(s[2]), s[3], s[4], s[5]);
    return {gx, ge, Tensor()};
  }
};

// Computes EdgeSum with PyTorch's operators. It is the reference, and runs on devices other than the CPU.
Tensor EdgeSumPlain(const Tensor& x, const SummedEdges& edges) {
  const int64_t targets = edges.offsets.size(0) - 1;
  // Entries beyond the last offset may name rows that x does not have. They are summed into one extra row.
  const Tensor row = SegmentOfEntry(edges.offsets, edges.sources.size(0));
  const Tensor messages = ReluRows(SelectRows(x, edges.sources.clamp_max(x.size(0) - 1)) +
                                   (edges.code.defined() ? SelectRows(edges.rows, edges.code) : edges.rows));
  const Tensor own = at::cat({x.narrow(0, edges.first_row, targets), at::zeros({1, x.size(1)}, x.options())});
  return AddRows(own, row, messages).narrow(0, 0, targets);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kGineForward.Register(library, nullptr, gpu::GineForward);
  kGineBackward.Register(library, nullptr, gpu::GineBackward);
  kGineEval.Register(library, nullptr, gpu::GineEval);
  kEdgeSum.Register(library);
  kEdgeSumBackward.Register(library);
}

Tensor GineLayer(const Tensor& x, const GineEdges& edges, const Tensor& real_rows, const GineWeights& w,
                 const GineDropout& dropout, const BatchNormOptions& norm) {
  // The GPU's operator takes no row keys.
  if (!HasColumnKernels(x, x.size(0)) || (dropout.row_keys.defined() && !IsFused(x))) {
    return GineLayerPlain(x, edges, real_rows, w, dropout, norm);
  }
  if (!IsFused(x)) {
    CheckGine(x, IfDefined(edges.rows), IfDefined(edges.code), edges.source.numel(),
              {w.w1, w.b1, w.w2, w.b2, ProductsOf(x, /*bfloat16=*/false)});
  }
  return GineLayerFunction::apply(x, IfDefined(edges.rows), w.w1, w.b1, w.w2, w.b2, w.norm_weight, w.norm_bias,
                                  IfDefined(edges.code), edges, real_rows, w, dropout, norm);
}

Tensor GineLayerEval(const Tensor& x, const GineEdges& edges, const Tensor& real_rows, const GineWeights& w,
                     const BatchNormOptions& norm) {
  if (!HasColumnKernels(x, x.size(0))) return GineLayerEvalPlain(x, edges, w, norm);
  const Tensor scale = w.norm_weight * (w.running_var + norm.eps).rsqrt();
  const Tensor shift = w.norm_bias - w.running_mean * scale;
  return kGineEval(x, IfDefined(edges.rows), IfDefined(edges.code), edges.source, edges.index.in_offsets, real_rows,
                   w.w1, w.b1, w.w2, w.b2, scale, shift, RoundsFactors(x));
}

Tensor SumGineMessages(const Tensor& x, const GineEdges& edges) {
  Tensor messages = SelectRows(x, edges.source);
  if (edges.rows.defined()) {
    messages = ReluRows(messages + (edges.code.defined() ? SelectRows(edges.rows, edges.code) : edges.rows));
  }
  return AddRows(x, edges.target, messages);
}

Tensor GineLayerPlain(const Tensor& x, const GineEdges& edges, const Tensor& real_rows, const GineWeights& w,
                      const GineDropout& dropout, const BatchNormOptions& norm) {
  const Tensor y = MaskedBatchNormRelu(Product(x, edges, w), real_rows, w.norm_weight, w.norm_bias, w.running_mean,
                                       w.running_var, norm);
  CountNormBatch(w.batches_tracked, real_rows);
  return Dropout(y, dropout.step, dropout.key, dropout.p, dropout.row_keys);
}

Tensor GineLayerEvalPlain(const Tensor& x, const GineEdges& edges, const GineWeights& w, const BatchNormOptions& norm) {
  return BatchNormReluEval(Product(x, edges, w), w.norm_weight, w.norm_bias, w.running_mean, w.running_var, norm);
}

Tensor EdgeSum(const Tensor& x, const SummedEdges& edges) {
  return IsFused(x) ? EdgeSumFunction::apply(x, edges.rows, edges) : EdgeSumPlain(x, edges);
}

}  // namespace permafrost::nn
