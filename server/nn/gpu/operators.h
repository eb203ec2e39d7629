// The operators of nn/ops for a GPU whose kernels were compiled. Each function has the arguments and results of the
// operator's CPU function. Floats are float32; integers are int64 or int32 as in the CPU function. It launches kernels
// of kernels.cu and PyTorch's matrix products.
// Threads: the device thread. The functions take tensors on any device whose memory the launcher's kernels can read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/operators.h"

namespace permafrost::nn::gpu {

// The source text that the device compiles: kernels.cu.
extern const char* const kKernelSource;

// Sets the launcher that all later steps use. If it is null, later steps run PyTorch's operators alone.
void UseKernels(std::shared_ptr<const KernelLauncher> launcher);
const std::shared_ptr<const KernelLauncher>& Kernels();

// The most rows for kernels whose blocks walk whole columns. With more rows, a few blocks would work long while the
// rest of the device is idle.
inline constexpr int64_t kMostRows = 1 << 15;

// The most blocks that a launch may have in its second dimension.
inline constexpr int64_t kMostBlocks = 65'535;
// The most edges for the kernel edge_index, which compares each edge with all others. If there are more, PyTorch
// sorts the edges.
inline constexpr int64_t kMostCountedEdges = 1 << 14;

// kernels.cu defines these constants too, as macros (COLUMNS, SHARES, ...).
inline constexpr int64_t kColumns = 8, kShares = 128, kLanes = 32, kRows = 8;
inline constexpr int64_t kMostTables = 16;

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor EmbeddingForward(const Tensor& features, at::TensorList tables);
std::vector<Tensor> EmbeddingBackward(const Tensor& grad, const Tensor& features, at::IntArrayRef sizes);
Tensor CombineCategories(const Tensor& features, at::IntArrayRef categories);

// If there are more than kMostCountedEdges edges, PyTorch sorts them.
std::tuple<Tensor, Tensor, Tensor, Tensor> EdgeIndex(const Tensor& source, const Tensor& target, int64_t nodes);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineForward(
    const Tensor& x, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
    const Tensor& in_offsets, const Tensor& real_rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
    const Tensor& b2, const Tensor& norm_weight, const Tensor& norm_bias, Tensor& running_mean, Tensor& running_var,
    Tensor& batches, const Tensor& step, const OptionalTensor& row_keys, double momentum, double eps, int64_t seed,
    int64_t layer, double p, bool bfloat16);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineBackward(
    const Tensor& grad, const Tensor& x, const OptionalTensor& edge_rows, const OptionalTensor& code,
    const Tensor& out_offsets, const Tensor& out_targets, const Tensor& out_edges, const Tensor& real_rows,
    const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2, const Tensor& norm_weight, const Tensor& y,
    const Tensor& sum, const Tensor& hidden, const Tensor& product, const Tensor& mean, const Tensor& invstd, double p,
    bool bfloat16);
Tensor GineEval(const Tensor& x, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
                const Tensor& in_offsets, const Tensor& real_rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                const Tensor& b2, const Tensor& scale, const Tensor& shift, bool bfloat16);

Tensor SegmentReduce(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights,
                     bool mean);

std::tuple<Tensor, Tensor> MlpForward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                                      const Tensor& b2, bool bfloat16);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> MlpBackward(const Tensor& grad, const Tensor& x,
                                                               const Tensor& hidden, const Tensor& w1, const Tensor& b1,
                                                               const Tensor& w2, const Tensor& b2, bool bfloat16);

std::tuple<Tensor, Tensor, Tensor> NormForward(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                               const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                               double momentum, double eps);
std::tuple<Tensor, Tensor, Tensor> NormBackward(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                const Tensor& invstd);

Tensor PoolForward(const Tensor& x, const Tensor& graph_of_row, int64_t graphs, bool mean);
Tensor PoolBackward(const Tensor& grad, const Tensor& graph_of_row, bool mean);

// Both losses return the mean, the sum and the count of LossTerms (nn/loss.h), then the gradient of the mean.
std::tuple<Tensor, Tensor, Tensor, Tensor> RegressionLoss(const Tensor& prediction, const Tensor& labels, bool square);
std::tuple<Tensor, Tensor, Tensor, Tensor> CrossEntropyLoss(const Tensor& logits, const Tensor& labels,
                                                            const OptionalTensor& class_weights);

}  // namespace permafrost::nn::gpu
