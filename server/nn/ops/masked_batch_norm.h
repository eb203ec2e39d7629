// Batch norm over the real rows of a padded batch, with ReLU, as one operator that a capture sees whole:
// permafrost::masked_batch_norm_relu and its backward. The count of real rows is a tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace permafrost::nn {

struct BatchNormOptions {
  double momentum = 0.1;
  double eps = 1e-5;
};

// Batches of fewer real rows are normalized by the running statistics, and leave them alone.
inline constexpr int64_t kLeastNormRows = 2;

// Counts the batches that training has followed: adds one where it has kLeastNormRows real rows or more. batches: []
// int64; real_rows: [1] or [] of any type.
// The caller has called that norm before: where a step is shared, it has counted the rows of all ranks.
void CountNormBatch(const at::Tensor& batches, const at::Tensor& real_rows);

// Training: y = relu((x - mean) / sqrt(var + eps) * weight + bias) with mean and (biased) variance over the first
// real_rows rows; running statistics are updated with the unbiased variance, as PyTorch's BatchNorm1d. One real row has
// no variance, and PyTorch raises an error: it is normalized by the running statistics, as in evaluation, and gradients
// take them for constants (PyG's BatchNorm with allow_single_element). With one real row, or none, the running
// statistics stay.
// x: [N, C] float32 or float64; real_rows: [1] int64 with 0 <= real_rows <= N; the rest: [C]. Returns [N, C]; padding
// rows are 0 and get gradient 0. Source: Ioffe and Szegedy 2015, algorithm 1; variance by two passes over each chunk.
at::Tensor MaskedBatchNormRelu(const at::Tensor& x, const at::Tensor& real_rows, const at::Tensor& weight,
                               const at::Tensor& bias, at::Tensor& running_mean, at::Tensor& running_var,
                               const BatchNormOptions& options = {});

// Evaluation: with the running statistics; rows do not see each other, so padding needs no mask.
at::Tensor BatchNormReluEval(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& running_mean, const at::Tensor& running_var,
                             const BatchNormOptions& options = {});

// Returns how many rows of a padded batch are real: the value of real_rows, [1] int64 on the CPU. Errors, which name
// `op`: it is outside 0..rows.
inline int64_t RealRows(const at::Tensor& real_rows, int64_t rows, const char* op) {
  const int64_t real = real_rows.const_data_ptr<int64_t>()[0];
  TORCH_CHECK(real >= 0 && real <= rows, op, ": real_rows: ", real, " is outside 0..", rows);
  return real;
}

}  // namespace permafrost::nn
