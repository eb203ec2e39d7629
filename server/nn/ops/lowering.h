// Chooses the operators of a step where there is a choice: the CPU's fused operators; the operators of PyTorch that say
// it best; or, of these, only such as add no entry to libtorch's cache of compiled MPS graphs (graphcache/census.h).
// The functions here are the pieces that differ between the last two.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/model.h"

namespace permafrost::nn {

// The lowering and the precision of this thread's steps while it lives; kAuto and kFloat32 where there is none.
class LoweringScope {
 public:
  explicit LoweringScope(spec::Lowering lowering, spec::Precision precision = spec::Precision::kFloat32);
  LoweringScope(const LoweringScope&) = delete;
  ~LoweringScope();

 private:
  const spec::Lowering outer_;
  const spec::Precision outer_precision_;
};

// Returns whether operators of `x` are this library's fused ones: on the CPU, unless a lowering is asked for.
bool IsFused(const at::Tensor& x);
// Returns whether IsFused(x), or `x` is on a GPU whose kernels were compiled (nn/gpu) and is of a type that they take.
// Asked by the operators that have such kernels.
bool HasKernels(const at::Tensor& x);
// The same for operators whose kernels walk whole columns of [N, C]: on a GPU, for at most gpu::kMostRows rows.
bool HasColumnKernels(const at::Tensor& x, int64_t rows);
// Returns whether the operators of PyTorch are to be shape-free: where that is asked for, and on MPS unless it is not.
bool IsShapeFree(const at::Tensor& x);
// Returns whether products of `x`, float32, with weights have factors rounded to bfloat16 (nn/kernels/bfloat16.h).
bool RoundsFactors(const at::Tensor& x);
// Returns whether this machine's CPU can round them: AVX512-BF16.
bool CanRoundFactors();

// x * weight^T (+ bias, where it is defined). x: [N, C]; weight: [D, C]; bias: [D]. Returns [N, D]. Shape-free: three
// bias-free linears, forward and backward. With rounded factors it is made of PyTorch's operators: its result is
// rounded to bfloat16 too, before the bias.
at::Tensor LinearRows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// Shape-free: leaky_relu, whose backward has no graph.
at::Tensor ReluRows(const at::Tensor& x);
// Row index[i] of x, [N, C] or [N], for each i; index: [E] int32 or int64. Shape-free: gather.
at::Tensor SelectRows(const at::Tensor& x, const at::Tensor& index);
// x, with values[i] added to its row index[i]; as SelectRows. Shape-free: scatter_add.
at::Tensor AddRows(const at::Tensor& x, const at::Tensor& index, const at::Tensor& values);

}  // namespace permafrost::nn
