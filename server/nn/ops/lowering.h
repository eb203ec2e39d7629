// Chooses the operators of a step: the CPU's fused operators, the PyTorch operators that express the step best, or
// shape-free PyTorch operators. Shape-free operators add no entry to libtorch's cache of compiled MPS graphs
// (graphcache/census.h). LinearRows, ReluRows, SelectRows and AddRows are the pieces in which the two kinds of
// PyTorch operators differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/model.h"

namespace permafrost::nn {

// Sets the lowering and the precision of this thread's steps as long as the scope lives. Without a scope they are
// kAuto and kFloat32.
class LoweringScope {
 public:
  explicit LoweringScope(spec::Lowering lowering, spec::Precision precision = spec::Precision::kFloat32);
  LoweringScope(const LoweringScope&) = delete;
  ~LoweringScope();

 private:
  const spec::Lowering outer_;
  const spec::Precision outer_precision_;
};

// Returns true if operators on `x` are this library's fused operators: `x` is on the CPU, and no other lowering is
// requested.
bool IsFused(const at::Tensor& x);
// Returns true if IsFused(x), or if `x` is on a GPU whose kernels were compiled (nn/gpu) and has a type that these
// kernels take. Meant for operators that have a GPU kernel.
bool HasKernels(const at::Tensor& x);
// Same as HasKernels, for operators whose kernels walk whole columns of [N, C]. A GPU runs them for at most
// gpu::kMostRows rows.
bool HasColumnKernels(const at::Tensor& x, int64_t rows);
// Returns true if PyTorch's operators must be shape-free: the shape-free lowering is requested, or `x` is on MPS and
// no other lowering is requested.
bool IsShapeFree(const at::Tensor& x);
// Returns whether products of the float32 `x` with weights round their factors to bfloat16 (nn/kernels/bfloat16.h).
bool RoundsFactors(const at::Tensor& x);
// Returns whether this machine's CPU can round factors, which takes AVX512-BF16.
bool CanRoundFactors();

// Returns x * weight^T, plus bias if it is defined: [N, D]. x: [N, C]; weight: [D, C]; bias: [D]. In the shape-free
// form, forward and backward together are three linears without bias. With rounded factors, the CPU's fused operator
// keeps the product in float32, and PyTorch's operators round it to bfloat16 before the bias is added.
at::Tensor LinearRows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// ReLU. The shape-free form is leaky_relu, whose backward adds no graph to libtorch's cache.
at::Tensor ReluRows(const at::Tensor& x);
// Returns row index[i] of x for each i. x: [N, C] or [N]; index: [E] int32 or int64. The shape-free form is gather.
at::Tensor SelectRows(const at::Tensor& x, const at::Tensor& index);
// Returns x with values[i] added to row index[i]. Shapes as for SelectRows. The shape-free form is scatter_add.
at::Tensor AddRows(const at::Tensor& x, const at::Tensor& index, const at::Tensor& values);

}  // namespace permafrost::nn
