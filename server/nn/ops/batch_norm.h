// Batch norm of rows with an optional ReLU, on several threads, as operators that a capture sees whole.
// permafrost::masked_batch_norm_relu normalises the real rows of a padded batch. The number of real rows is a tensor.
// permafrost::row_norm serves programs. The helpers of the CPU's norms come last.
// Threads: any. Bits do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "collective/group.h"
#include "nn/ops/chunks.h"

namespace permafrost::nn {

struct BatchNormOptions {
  double momentum = 0.1;
  double eps = 1e-5;
};

// A batch with fewer real rows is normalised by the running statistics, and leaves them unchanged.
inline constexpr int64_t kLeastNormRows = 2;

// If this batch has at least kLeastNormRows real rows, adds one to `batches`, the number of batches that have updated
// the running statistics. batches: [] int64; real_rows: [1] or [] of any type.
// In a shared step, call it after the norm on the same thread, since the norm counts the rows of all ranks.
void CountNormBatch(const at::Tensor& batches, const at::Tensor& real_rows);

// Training. Returns y = relu((x - mean) / sqrt(var + eps) * weight + bias), with the mean and biased variance of the
// first real_rows rows. Updates the running statistics with the unbiased variance, as PyTorch's BatchNorm1d.
// A single real row has no variance. PyTorch raises an error for it; here the row is normalised by the running
// statistics, as in evaluation. Gradients treat these statistics as constants (PyG's BatchNorm with
// allow_single_element). With one real row or none, the running statistics stay unchanged.
// x: [N, C] float32 or float64; real_rows: [1] int64 with 0 <= real_rows <= N; the rest: [C]. Returns [N, C]; padding
// rows are 0 and get gradient 0. Source: Ioffe and Szegedy 2015, algorithm 1; variance by two passes over each chunk.
at::Tensor MaskedBatchNormRelu(const at::Tensor& x, const at::Tensor& real_rows, const at::Tensor& weight,
                               const at::Tensor& bias, at::Tensor& running_mean, at::Tensor& running_var,
                               const BatchNormOptions& options = {});

// Evaluation, by the running statistics. Rows do not depend on each other, so padding needs no mask.
at::Tensor BatchNormReluEval(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& running_mean, const at::Tensor& running_var,
                             const BatchNormOptions& options = {});

// Returns the number of real rows in a padded batch: the value of real_rows, [1] int64 on the CPU. Errors: c10::Error
// that begins with `op`, if the value is outside 0..rows.
inline int64_t RealRows(const at::Tensor& real_rows, int64_t rows, const char* op) {
  const int64_t real = real_rows.const_data_ptr<int64_t>()[0];
  TORCH_CHECK(real >= 0 && real <= rows, op, ": real_rows: ", real, " is outside 0..", rows);
  return real;
}

// Returns whether a device runs permafrost::row_norm. Only the CPU does.
bool RunsRowNorm(c10::Device device);

// Batch norm in training, as at::batch_norm for [N, D]. Normalises by the statistics of x, and updates the running
// statistics. x: float32 or float64; the rest: [D] of x's type. Differentiable in x, weight and bias. Errors:
// ValueError for a single row outside a shared step, as in PyTorch's Python. Without rows the running statistics stay
// unchanged.
at::Tensor RowBatchNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& running_mean,
                        at::Tensor& running_var, const BatchNormOptions& norm, bool relu);

// Sets row `first` of `to` [N, D] and all rows after it to 0.
template <class T>
void ClearRows(const at::Tensor& to, int64_t first) {
  std::fill_n(Write<T>(to) + first * to.size(1), (to.size(0) - first) * to.size(1), T(0));
}

// Merges moments over all ranks that share the step (collective/group.h). Replaces this rank's row count, means [D],
// and sums of squared differences from the means [D]. The new values cover all ranks, merged in float64 in the order
// of ranks. Does nothing if no step is shared.
void MergeMoments(int64_t& rows, std::vector<double>& means, std::vector<double>& squares);
// Replaces `rows` and `sums` by their totals over all ranks, added in float64 in the order of ranks. Does nothing if
// no step is shared.
void MergeSums(int64_t& rows, std::vector<double>& sums);
// Returns the row count over all ranks from the last MergeMoments on this thread.
int64_t MergedRows();

// Combines the moments of all chunks, [chunks, 2, D], and returns the norm's scale and shift, [2, D]. Writes mean and
// invstd, and updates the running statistics. With fewer than kLeastNormRows rows it normalises by the running
// statistics, and leaves them unchanged. In a shared step it merges the moments of all ranks, and counts the rows of
// all ranks. Sum: the type in which chunks are summed; double if there may be thousands of chunks.
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
  auto count = static_cast<Sum>(std::max<int64_t>(1, rows));
  const T momentum = static_cast<T>(norm.momentum);
  // Merges the moments of the chunks. Source: Chan et al. 1983.
  std::vector<Sum> averages(static_cast<size_t>(width), 0), sums(static_cast<size_t>(width), 0);
  for (int64_t c = 0; c < chunks.count(); ++c) {
    const T* const means = of + 2 * c * width;
    const Sum share = static_cast<Sum>(chunks.size(c)) / count;
    for (int64_t d = 0; d < width; ++d) averages[d] += static_cast<Sum>(means[d]) * share;
  }
  for (int64_t c = 0; c < chunks.count(); ++c) {
    const T *const means = of + 2 * c * width, *const squares = means + width;
    const auto size = static_cast<Sum>(chunks.size(c));
    for (int64_t d = 0; d < width; ++d) {
      const Sum away = static_cast<Sum>(means[d]) - averages[d];
      sums[d] += static_cast<Sum>(squares[d]) + size * away * away;
    }
  }
  if (collective::IsShared()) {
    std::vector<double> means(averages.begin(), averages.end()), squares(sums.begin(), sums.end());
    MergeMoments(rows, means, squares);
    count = static_cast<Sum>(std::max<int64_t>(1, rows));
    std::ranges::transform(means, averages.begin(), [](double x) { return static_cast<Sum>(x); });
    std::ranges::transform(squares, sums.begin(), [](double x) { return static_cast<Sum>(x); });
  }
  const bool follows = rows >= kLeastNormRows;
  for (int64_t d = 0; d < width; ++d) {
    const Sum average = averages[d], squares = sums[d];
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

// Adds up the sums of all chunks, [chunks, 2, D], and returns [3, D] for NormGradient: mean_grad, mean_dot and scale.
// Writes the gradients of the norm's weight and bias. In a shared step these two gradients cover only this rank's
// rows.
template <class T, class Sum>
at::Tensor CombineNormSums(const RowChunks& chunks, int64_t rows, const at::Tensor& sums, const at::Tensor& norm_weight,
                           const at::Tensor& saved_mean, const at::Tensor& saved_invstd, const at::Tensor& weight_to,
                           const at::Tensor& bias_to) {
  const int64_t width = saved_mean.numel();
  at::Tensor means = at::empty({3, width}, saved_mean.options());
  const T *const of = Read<T>(sums), *const invstd = Read<T>(saved_invstd), *const weight = Read<T>(norm_weight);
  T *const mean = Write<T>(means), *const gw = Write<T>(weight_to), *const gb = Write<T>(bias_to);
  std::vector<Sum> totals(static_cast<size_t>(2 * width), 0);
  for (int64_t c = 0; c < chunks.count(); ++c) {
    for (int64_t i = 0; i < 2 * width; ++i) totals[i] += static_cast<Sum>(of[2 * c * width + i]);
  }
  for (int64_t d = 0; d < width; ++d) {
    gb[d] = static_cast<T>(totals[d]);
    gw[d] = static_cast<T>(totals[width + d] * static_cast<Sum>(invstd[d]));
  }
  if (collective::IsShared()) {
    std::vector<double> shared(totals.begin(), totals.end());
    MergeSums(rows, shared);
    std::ranges::transform(shared, totals.begin(), [](double x) { return static_cast<Sum>(x); });
  }
  const bool follows = rows >= kLeastNormRows;
  const auto count = static_cast<Sum>(std::max<int64_t>(1, rows));
  for (int64_t d = 0; d < width; ++d) {
    const Sum sum = totals[d], dot = totals[width + d];
    const auto inverse = static_cast<Sum>(invstd[d]);
    // Running statistics are constants, so no gradient passes through them.
    mean[d] = follows ? static_cast<T>(sum / count) : T(0);
    mean[width + d] = follows ? static_cast<T>(dot * inverse * inverse / count) : T(0);
    mean[2 * width + d] = weight[d] * invstd[d];
  }
  return means;
}

}  // namespace permafrost::nn
