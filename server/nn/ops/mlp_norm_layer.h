// The skeleton of fused layers on the CPU: aggregation, MLP, batch norm, ReLU and dropout by chunks of rows, forward
// and backward. Layers differ in the aggregation, a class of these members:
//   void Sum(int64_t begin, int64_t end, T* sum) const;       rows [begin, end) of sum, [N, in]
//   void Gradient(int64_t chunk, int64_t begin, int64_t end, const T* g, T* gx) const;
//                                                             rows of gx, given g = dL/dsum [N, in] of all real rows
// Threads: ATen's. Bits do not depend on their number.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/masked_batch_norm.h"
#include "nn/ops/row_norm.h"

namespace permafrost::nn {

struct LayerWeights {
  MlpWeights mlp;
  at::Tensor norm_weight, norm_bias;  // [D]
};

// The tensors that the forward pass keeps for the backward: [N, ...] or [D].
struct LayerSaved {
  at::Tensor y, sum, hidden, product, mean, invstd;
};

// Sum, hidden and product of the real rows; after_chunk(chunk, first row, rows) follows while they are in cache.
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

// Undefined where nothing is dropped.
struct LayerDropout {
  DropoutMask mask;
  double p = 0;
};

// Training. Everything of `to` is made here.
template <class T, class Aggregation>
LayerSaved ForwardLayer(const Aggregation& aggregation, const LayerWeights& w, int64_t all_rows, int64_t rows,
                        const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& norm,
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
  // As large as padding makes it, so that the size does not depend on values.
  const at::Tensor moments = at::empty({RowChunks::CountOf(all_rows, values), 2, widths.out}, options);
  const T* const product = Read<T>(to.product);
  ForwardRows<T>(aggregation, w.mlp, chunks, rows, to, [&](int64_t c, int64_t begin, int64_t size) {
    T* const of = Write<T>(moments) + 2 * c * widths.out;
    ColumnMoments<T>(product + begin * widths.out, size, widths.out, of, of + widths.out);
  });
  const at::Tensor affine = CombineMoments<T, T>(chunks, rows, moments, w.norm_weight, w.norm_bias, running_mean,
                                                 running_var, norm, to.mean, to.invstd);
  const T *const scale = Read<T>(affine), kept = static_cast<T>(1 / (1 - dropout.p));
  T* const y = Write<T>(to.y);
  ForChunks(chunks, ChunkGrain(chunks, rows * w.mlp.products()), [&](int64_t, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    ScaleShift<T>(product + at, size, widths.out, scale, scale + widths.out, /*relu=*/true, y + at);
    if (dropout.p > 0) DropRows<T>(dropout.mask, kept, nullptr, begin, size, widths.out, y + at, y + at);
  });
  // No byte of an operator's results is left unset: whoever compares two runs of it compares them all.
  for (const at::Tensor& result : {to.y, to.sum, to.hidden, to.product}) ClearRows<T>(result, rows);
  return to;
}

// Evaluation: the norm's scale and shift are known before, so that one pass does all.
template <class T, class Aggregation>
at::Tensor ForwardLayerEval(const Aggregation& aggregation, const MlpWeights& w, int64_t all_rows, int64_t rows,
                            const at::Tensor& scale, const at::Tensor& shift) {
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
  at::Tensor x;
  MlpWeights mlp;
  at::Tensor norm_weight, norm_bias;
};

// grad: [N, D]. aggregation.Gradient has run for every chunk when this returns.
template <class T, class Aggregation>
LayerGradients BackwardLayer(const Aggregation& aggregation, const at::Tensor& grad, const LayerSaved& saved,
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

  const at::Tensor sums = at::empty({RowChunks::CountOf(all_rows, values), 2, widths.out}, options);
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    T* const of = Write<T>(sums) + 2 * c * widths.out;
    NormGradientSums<T>(g + at, y + at, z + at, mean, kept, size, widths.out, of, of + widths.out);
  });
  const at::Tensor combined =
      CombineNormSums<T, T>(chunks, rows, sums, w.norm_weight, saved.mean, saved.invstd, to.norm_weight, to.norm_bias);
  const T* const means = Read<T>(combined);

  const MlpBackwardChunks<T> mlp(w.mlp, all_rows);
  const at::Tensor product_gradient = at::empty({all_rows, widths.out}, options);
  const at::Tensor sum_gradient = at::empty({all_rows, widths.in}, options);
  T *const gz = Write<T>(product_gradient), *const gsum = Write<T>(sum_gradient);
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    NormGradient<T>(g + at, y + at, z + at, mean, kept, means + 2 * widths.out, means, means + widths.out, size,
                    widths.out, gz + at);
    mlp.Run(c, begin, size, Read<T>(saved.sum), Read<T>(saved.hidden), gz, gsum);
  });

  T* const gx = Write<T>(to.x);
  // No edge of a real row should end in padding; one that does passes no gradient.
  std::fill_n(gsum + rows * widths.in, (all_rows - rows) * widths.in, T(0));
  ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    aggregation.Gradient(c, begin, begin + size, gsum, gx);
    mlp.AddShare(c, chunks.count(), to.mlp);
  });
  std::fill_n(gx + rows * widths.in, (all_rows - rows) * widths.in, T(0));
  return to;
}

}  // namespace permafrost::nn
