// The skeleton of fused layers on the CPU: aggregation, MLP, batch norm, ReLU and dropout by chunks of rows, forward
// and backward. What differs between layers is the aggregation, a class of these members:
//   void Sum(int64_t begin, int64_t end, T* sum) const;       rows [begin, end) of sum, [N, in]
//   void Gradient(int64_t chunk, int64_t begin, int64_t end, const T* g, T* gx) const;
//                                                             rows of gx, given g = dL/dsum [N, in] of all real rows
// Threads: ATen's. Bits do not depend on their number.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>

#include "nn/kernels/mlp.h"
#include "nn/kernels/norm.h"
#include "nn/ops/masked_batch_norm.h"
#include "nn/ops/row_chunks.h"

namespace permafrost::nn {

template <class T>
const T* Read(const at::Tensor& t) {
  return t.const_data_ptr<T>();
}
template <class T>
T* Write(const at::Tensor& t) {
  return t.mutable_data_ptr<T>();
}

// Real rows, [1] int64, within 0..N.
inline int64_t RealRows(const at::Tensor& real_rows, int64_t rows, const char* op) {
  const int64_t real = real_rows.const_data_ptr<int64_t>()[0];
  TORCH_CHECK(real >= 0 && real <= rows, op, ": real_rows: ", real, " is outside 0..", rows);
  return real;
}

// Below this many multiplications a region stays on one thread: a fork would cost more.
inline constexpr int64_t kParallelProducts = 1 << 19;
inline int64_t ChunkGrain(const RowChunks& chunks, int64_t products) {
  return products < kParallelProducts ? chunks.count() : 1;
}

struct LayerWeights {
  at::Tensor w1, b1, w2, b2, norm_weight, norm_bias;
  MlpWidths widths() const { return {w1.size(1), w1.size(0), w2.size(0)}; }
  int64_t products() const { return w1.numel() + w2.numel(); }  // a row's
  // Values that a chunk keeps for the gradients of w1, b1, w2, b2.
  int64_t values() const { return w1.numel() + b1.numel() + w2.numel() + b2.numel(); }
};

// What the forward pass keeps for the backward: [N, ...] or [D].
struct LayerSaved {
  at::Tensor y, sum, hidden, product, mean, invstd;
};

// Packs both weights, one a thread where that pays.
template <class T, class Pack>
at::Tensor PackBoth(const LayerWeights& w, int64_t first_size, int64_t second_size, const Pack& pack) {
  at::Tensor packed = at::empty({first_size + second_size}, w.w1.options());
  T* const to = Write<T>(packed);
  at::parallel_for(0, 2, w.products() < kParallelProducts ? 2 : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor& weight = i == 0 ? w.w1 : w.w2;
      pack(Read<T>(weight), weight.size(0), weight.size(1), to + (i == 0 ? 0 : first_size));
    }
  });
  return packed;
}

template <class T, class Body>
void ForChunks(const RowChunks& chunks, int64_t grain, const Body& body) {
  at::parallel_for(0, chunks.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) body(c, chunks.begin(c), chunks.size(c));
  });
}

// Sum, hidden and product of the real rows; after_chunk(chunk, first row, rows) follows while they are in cache.
template <class T, class Aggregation, class AfterChunk>
void ForwardRows(const Aggregation& aggregation, const LayerWeights& w, const RowChunks& chunks, int64_t rows,
                 const LayerSaved& to, const AfterChunk& after_chunk) {
  const MlpWidths widths = w.widths();
  const int64_t first_size = PackedSize<T>(widths.in, widths.hidden);
  const at::Tensor packed = PackBoth<T>(w, first_size, PackedSize<T>(widths.hidden, widths.out), PackForward<T>);
  const T* const first = Read<T>(packed);
  const T *const b1 = Read<T>(w.b1), *const b2 = Read<T>(w.b2);
  T *const sum = Write<T>(to.sum), *const hidden = Write<T>(to.hidden), *const product = Write<T>(to.product);
  ForChunks<T>(chunks, ChunkGrain(chunks, rows * w.products()), [&](int64_t c, int64_t begin, int64_t size) {
    aggregation.Sum(begin, begin + size, sum);
    MlpForward<T>(widths, size, sum + begin * widths.in, first, b1, first + first_size, b2,
                  hidden + begin * widths.hidden, product + begin * widths.out);
    after_chunk(c, begin, size);
  });
}

// [2, D]: what the norm multiplies with and adds, of all chunks' moments [chunks, 2, D]. Updates the running
// statistics.
template <class T>
at::Tensor CombineMoments(const RowChunks& chunks, int64_t rows, const at::Tensor& moments, const LayerWeights& w,
                          const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& norm,
                          const LayerSaved& to) {
  const int64_t width = w.norm_weight.numel();
  at::Tensor affine = at::empty({2, width}, w.norm_weight.options());
  const T* const of = Read<T>(moments);
  T *const mean = Write<T>(to.mean), *const invstd = Write<T>(to.invstd), *const scale = Write<T>(affine);
  T *const old_mean = Write<T>(running_mean), *const old_var = Write<T>(running_var);
  const T *const weight = Read<T>(w.norm_weight), *const bias = Read<T>(w.norm_bias);
  const auto count = static_cast<T>(std::max<int64_t>(1, rows));
  const T momentum = rows > 0 ? static_cast<T>(norm.momentum) : T(0);
  for (int64_t d = 0; d < width; ++d) {
    // Chan et al. 1983: moments of parts.
    T average = 0, squares = 0;
    for (int64_t c = 0; c < chunks.count(); ++c) {
      average += of[2 * c * width + d] * (static_cast<T>(chunks.size(c)) / count);
    }
    for (int64_t c = 0; c < chunks.count(); ++c) {
      const T away = of[2 * c * width + d] - average;
      squares += of[(2 * c + 1) * width + d] + static_cast<T>(chunks.size(c)) * away * away;
    }
    mean[d] = average;
    invstd[d] = T(1) / std::sqrt(squares / count + static_cast<T>(norm.eps));
    scale[d] = invstd[d] * weight[d];
    scale[width + d] = bias[d] - average * scale[d];
    old_mean[d] += momentum * (average - old_mean[d]);
    old_var[d] += momentum * (squares / static_cast<T>(std::max<int64_t>(1, rows - 1)) - old_var[d]);
  }
  return affine;
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
  const MlpWidths widths = w.widths();
  const auto options = w.w1.options();
  const LayerSaved to{at::empty({all_rows, widths.out}, options),
                      at::empty({all_rows, widths.in}, options),
                      at::empty({all_rows, widths.hidden}, options),
                      at::empty({all_rows, widths.out}, options),
                      at::empty({widths.out}, options),
                      at::empty({widths.out}, options)};
  const RowChunks chunks(rows, w.values());
  // As large as padding makes it, so that the size does not depend on values.
  const at::Tensor moments = at::empty({RowChunks::CountOf(all_rows, w.values()), 2, widths.out}, options);
  const T* const product = Read<T>(to.product);
  ForwardRows<T>(aggregation, w, chunks, rows, to, [&](int64_t c, int64_t begin, int64_t size) {
    T* const of = Write<T>(moments) + 2 * c * widths.out;
    ColumnMoments<T>(product + begin * widths.out, size, widths.out, of, of + widths.out);
  });
  const at::Tensor affine = CombineMoments<T>(chunks, rows, moments, w, running_mean, running_var, norm, to);
  const T *const scale = Read<T>(affine), kept = static_cast<T>(1 / (1 - dropout.p));
  T* const y = Write<T>(to.y);
  ForChunks<T>(chunks, ChunkGrain(chunks, rows * w.products()), [&](int64_t, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    ScaleShiftRelu<T>(product + at, size, widths.out, scale, scale + widths.out, y + at);
    if (dropout.p > 0) DropRows<T>(dropout.mask, kept, begin, size, widths.out, y + at);
  });
  std::fill_n(y + rows * widths.out, (all_rows - rows) * widths.out, T(0));
  return to;
}

// Evaluation: the norm's scale and shift are known before, so that one pass does all.
template <class T, class Aggregation>
at::Tensor ForwardLayerEval(const Aggregation& aggregation, const LayerWeights& w, int64_t all_rows, int64_t rows,
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
    ScaleShiftRelu<T>(Read<T>(to.product) + at, size, widths.out, Read<T>(scale), Read<T>(shift), y + at);
  });
  std::fill_n(y + rows * widths.out, (all_rows - rows) * widths.out, T(0));
  return to.y;
}

struct LayerGradients {
  at::Tensor x, w1, b1, w2, b2, norm_weight, norm_bias;
};

// [3, D], as NormGradient takes them: mean_grad, mean_dot and scale; of all chunks' sums [chunks, 2, D]. Writes the
// gradients of the norm's weight and bias.
template <class T>
at::Tensor CombineNormSums(const RowChunks& chunks, int64_t rows, const at::Tensor& sums, const LayerWeights& w,
                           const LayerSaved& saved, const LayerGradients& to) {
  const int64_t width = saved.mean.numel();
  at::Tensor means = at::empty({3, width}, saved.mean.options());
  const T *const of = Read<T>(sums), *const invstd = Read<T>(saved.invstd), *const weight = Read<T>(w.norm_weight);
  T *const mean = Write<T>(means), *const gw = Write<T>(to.norm_weight), *const gb = Write<T>(to.norm_bias);
  const auto count = static_cast<T>(std::max<int64_t>(1, rows));
  for (int64_t d = 0; d < width; ++d) {
    T sum = 0, dot = 0;
    for (int64_t c = 0; c < chunks.count(); ++c) {
      sum += of[2 * c * width + d];
      dot += of[(2 * c + 1) * width + d];
    }
    gb[d] = sum;
    gw[d] = dot * invstd[d];
    mean[d] = sum / count;
    mean[width + d] = dot * invstd[d] * invstd[d] / count;
    mean[2 * width + d] = weight[d] * invstd[d];
  }
  return means;
}

// Places of one chunk's sums among its partial values.
template <class T>
MlpGradients<T> PartialOf(const LayerWeights& w, T* partial) {
  T* const b1 = partial + w.w1.numel();
  T* const w2 = b1 + w.b1.numel();
  return {partial, b1, w2, w2 + w.w2.numel()};
}

// grad: [N, D]. aggregation.Gradient has run for every chunk when this returns.
template <class T, class Aggregation>
LayerGradients BackwardLayer(const Aggregation& aggregation, const at::Tensor& grad, const LayerSaved& saved,
                             const LayerWeights& w, int64_t rows, double p) {
  const MlpWidths widths = w.widths();
  const int64_t all_rows = saved.y.size(0), values = w.values();
  const auto options = w.w1.options();
  const LayerGradients to{at::empty({all_rows, widths.in}, options),
                          at::empty_like(w.w1),
                          at::empty_like(w.b1),
                          at::empty_like(w.w2),
                          at::empty_like(w.b2),
                          at::empty_like(w.norm_weight),
                          at::empty_like(w.norm_bias)};
  const RowChunks chunks(rows, values);
  const int64_t most = RowChunks::CountOf(all_rows, values), grain = ChunkGrain(chunks, rows * w.products());
  const T *const g = Read<T>(grad), *const y = Read<T>(saved.y), *const z = Read<T>(saved.product);
  const T *const mean = Read<T>(saved.mean), kept = static_cast<T>(1 / (1 - p));

  const at::Tensor sums = at::empty({most, 2, widths.out}, options);
  ForChunks<T>(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    T* const of = Write<T>(sums) + 2 * c * widths.out;
    NormGradientSums<T>(g + at, y + at, z + at, mean, kept, size, widths.out, of, of + widths.out);
  });
  const at::Tensor combined = CombineNormSums<T>(chunks, rows, sums, w, saved, to);
  const T* const means = Read<T>(combined);

  const int64_t first_size = PackedSize<T>(widths.hidden, widths.in);
  const at::Tensor packed = PackBoth<T>(w, first_size, PackedSize<T>(widths.out, widths.hidden), PackBackward<T>);
  // Rows of the largest chunk; a chunk of fewer rows uses a part.
  const int64_t chunk_rows = std::max(RowChunks::kRows, (all_rows + most - 1) / most);
  const int64_t scratch_size = MlpScratch<T>(widths, chunk_rows);
  const at::Tensor gz = at::empty({all_rows, widths.out + widths.hidden + widths.in}, options);
  const at::Tensor scratch = at::empty({most, scratch_size}, options), partial = at::empty({most, values}, options);
  T* const gz2 = Write<T>(gz);
  T* const gz1 = gz2 + all_rows * widths.out;
  T* const gsum = gz1 + all_rows * widths.hidden;
  ForChunks<T>(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    const int64_t at = begin * widths.out;
    NormGradient<T>(g + at, y + at, z + at, mean, kept, means + 2 * widths.out, means, means + widths.out, size,
                    widths.out, gz2 + at);
    MlpBackward<T>(widths, size, Read<T>(saved.sum) + begin * widths.in, Read<T>(saved.hidden) + begin * widths.hidden,
                   gz2 + at, Read<T>(packed), Read<T>(packed) + first_size, gz1 + begin * widths.hidden,
                   Write<T>(scratch) + c * scratch_size, gsum + begin * widths.in,
                   PartialOf(w, Write<T>(partial) + c * values));
  });

  T* const gx = Write<T>(to.x);
  const T* const parts = Read<T>(partial);
  const MlpGradients<T> out{Write<T>(to.w1), Write<T>(to.b1), Write<T>(to.w2), Write<T>(to.b2)};
  const int64_t sizes[] = {w.w1.numel(), w.b1.numel(), w.w2.numel(), w.b2.numel()};
  T* const ends[] = {out.first, out.first_bias, out.second, out.second_bias};
  ForChunks<T>(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
    aggregation.Gradient(c, begin, begin + size, gsum, gx);
    // And a share of the weights' gradients, added up over the chunks.
    int64_t before = 0;
    for (int k = 0; k < 4; before += sizes[k++]) {
      const int64_t from = std::clamp<int64_t>(values * c / chunks.count() - before, 0, sizes[k]);
      const int64_t until = std::clamp<int64_t>(values * (c + 1) / chunks.count() - before, 0, sizes[k]);
      AddParts<T>(parts + before + from, values, chunks.count(), until - from, ends[k] + from);
    }
  });
  std::fill_n(gx + rows * widths.in, (all_rows - rows) * widths.in, T(0));
  return to;
}

}  // namespace permafrost::nn
