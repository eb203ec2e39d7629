// Batch norm of rows by chunks on several threads, with ReLU behind it: what the CPU's norms share, and the operator
// permafrost::row_norm, which programs use. Threads: any. Bits do not depend on their number.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "nn/ops/chunks.h"
#include "nn/ops/masked_batch_norm.h"

namespace permafrost::nn {

// The rows of [N, ...] from `first` on become 0.
template <class T>
void ClearRows(const at::Tensor& to, int64_t first) {
  std::fill_n(Write<T>(to) + first * to.size(1), (to.size(0) - first) * to.size(1), T(0));
}

// Returns [2, D], what the norm multiplies with and adds, from all chunks' moments [chunks, 2, D]. Writes mean and
// invstd, and updates the running statistics. With fewer than kLeastNormRows rows all is made of these, which stay.
// Sum: the type in which chunks are added up; double where there may be thousands.
template <class T, class Sum>
at::Tensor CombineMoments(const RowChunks& chunks, int64_t rows, const at::Tensor& moments,
                          const at::Tensor& norm_weight, const at::Tensor& norm_bias, const at::Tensor& running_mean,
                          const at::Tensor& running_var, const BatchNormOptions& norm, const at::Tensor& mean_to,
                          const at::Tensor& invstd_to) {
  const int64_t width = norm_weight.numel();
  at::Tensor affine = at::empty({2, width}, norm_weight.options());
  const T* const of = Read<T>(moments);
  T *const mean = Write<T>(mean_to), *const invstd = Write<T>(invstd_to), *const scale = Write<T>(affine);
  T *const old_mean = Write<T>(running_mean), *const old_var = Write<T>(running_var);
  const T *const weight = Read<T>(norm_weight), *const bias = Read<T>(norm_bias);
  const auto count = static_cast<Sum>(std::max<int64_t>(1, rows));
  const bool follows = rows >= kLeastNormRows;
  const T momentum = static_cast<T>(norm.momentum);
  for (int64_t d = 0; d < width; ++d) {
    // Chan et al. 1983: moments of parts.
    Sum average = 0, squares = 0;
    for (int64_t c = 0; c < chunks.count(); ++c) {
      average += static_cast<Sum>(of[2 * c * width + d]) * (static_cast<Sum>(chunks.size(c)) / count);
    }
    for (int64_t c = 0; c < chunks.count(); ++c) {
      const Sum away = static_cast<Sum>(of[2 * c * width + d]) - average;
      squares += static_cast<Sum>(of[(2 * c + 1) * width + d]) + static_cast<Sum>(chunks.size(c)) * away * away;
    }
    mean[d] = follows ? static_cast<T>(average) : old_mean[d];
    const T var = follows ? static_cast<T>(squares / count) : old_var[d];
    invstd[d] = T(1) / std::sqrt(var + static_cast<T>(norm.eps));
    scale[d] = invstd[d] * weight[d];
    scale[width + d] = bias[d] - mean[d] * scale[d];
    if (!follows) continue;
    old_mean[d] += momentum * (mean[d] - old_mean[d]);
    old_var[d] += momentum * (static_cast<T>(squares / static_cast<Sum>(rows - 1)) - old_var[d]);
  }
  return affine;
}

// Returns [3, D], as NormGradient takes them: mean_grad, mean_dot and scale; of all chunks' sums [chunks, 2, D]. Writes
// the gradients of the norm's weight and bias.
template <class T, class Sum>
at::Tensor CombineNormSums(const RowChunks& chunks, int64_t rows, const at::Tensor& sums, const at::Tensor& norm_weight,
                           const at::Tensor& saved_mean, const at::Tensor& saved_invstd, const at::Tensor& weight_to,
                           const at::Tensor& bias_to) {
  const int64_t width = saved_mean.numel();
  at::Tensor means = at::empty({3, width}, saved_mean.options());
  const T *const of = Read<T>(sums), *const invstd = Read<T>(saved_invstd), *const weight = Read<T>(norm_weight);
  T *const mean = Write<T>(means), *const gw = Write<T>(weight_to), *const gb = Write<T>(bias_to);
  const bool follows = rows >= kLeastNormRows;
  const auto count = static_cast<Sum>(std::max<int64_t>(1, rows));
  for (int64_t d = 0; d < width; ++d) {
    Sum sum = 0, dot = 0;
    for (int64_t c = 0; c < chunks.count(); ++c) {
      sum += static_cast<Sum>(of[2 * c * width + d]);
      dot += static_cast<Sum>(of[(2 * c + 1) * width + d]);
    }
    const auto inverse = static_cast<Sum>(invstd[d]);
    gb[d] = static_cast<T>(sum);
    gw[d] = static_cast<T>(dot * inverse);
    // Running statistics are constants: nothing of the gradient passes through them.
    mean[d] = follows ? static_cast<T>(sum / count) : T(0);
    mean[width + d] = follows ? static_cast<T>(dot * inverse * inverse / count) : T(0);
    mean[2 * width + d] = weight[d] * invstd[d];
  }
  return means;
}

// The first `rows` rows of [N, D] are normalized; the others are 0, and pass no gradient.
struct NormOutput {
  at::Tensor y;             // [N, D]
  at::Tensor mean, invstd;  // [D]: what the rows were normalized with
};
NormOutput NormalizeRows(const at::Tensor& x, int64_t rows, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& norm,
                         bool relu);

struct NormGradients {
  at::Tensor x;             // [N, D]
  at::Tensor weight, bias;  // [D]
};
// y: the output if ReLU followed, else undefined.
NormGradients NormalizeRowsBackward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y, int64_t rows,
                                    const at::Tensor& weight, const at::Tensor& mean, const at::Tensor& invstd);

// Batch norm in training, as at::batch_norm for [N, D]: with the statistics of x, which the running ones follow. x:
// float32 or float64; the rest: [D] of its type. Differentiable in x, weight and bias. Errors: ValueError for one
// row, as PyTorch's Python. No rows leave the statistics as they are.
at::Tensor RowBatchNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& running_mean,
                        at::Tensor& running_var, const BatchNormOptions& norm, bool relu);

}  // namespace permafrost::nn
