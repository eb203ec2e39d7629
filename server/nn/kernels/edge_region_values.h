// The steps of a region that work value by value, and their gradients, over values that follow each other.
// Threads: any, each with values of its own.
#pragma once

#include <cstdint>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// Values of a step's operands, each as wide as the step. Pointers to operands that the step lacks are not read.
template <class T>
struct RegionValues {
  const T *a, *b, *c;
};

// out[i], for i < n. `out` may be an operand's place.
template <class T>
void ComputeValues(const RegionStep& step, const RegionValues<T>& in, int64_t n, T* out);

// The gradient for operand k: to[i] = g[i] * d(step) / d(operand k). y: the step's values. Of values, those are read
// that the formula has (RegionGradientPlan). Formulas are PyTorch's, for 0, inf and NaN too. `to` is none of the
// others.
template <class T>
void ValueGradient(const RegionStep& step, int k, const RegionValues<T>& in, const T* y, const T* g, int64_t n, T* to);

// out[i] = a[i] + b[i]; `out` may be either.
template <class T>
void AddValues(const T* a, const T* b, int64_t n, T* out);

}  // namespace permafrost::nn
