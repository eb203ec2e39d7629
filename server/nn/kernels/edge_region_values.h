// The steps of a region that work value by value, and their gradients, over values that follow each other.
// Threads: any, each with values of its own.
#pragma once

#include <cstdint>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// Rows of values, as wide as the step that reads them: row j is at base + stride * rows[j], or stride * j where `rows`
// is null.
template <class T>
struct RegionRows {
  const T* base = nullptr;
  const int64_t* rows = nullptr;
  int64_t stride = 0;
  RegionRows From(int64_t first) const {
    return rows == nullptr ? RegionRows{base == nullptr ? nullptr : base + first * stride, nullptr, stride}
                           : RegionRows{base, rows + first, stride};
  }
};
// Operands that the step lacks are not read.
template <class T>
struct RegionValues {
  RegionRows<T> a, b, c;
};

// out: [rows, width]; it may be the memory of an operand whose rows follow each other.
template <class T>
void ComputeValues(const RegionStep& step, const RegionValues<T>& in, int64_t rows, T* out);

// The gradient for operand k: to = g * d(step) / d(operand k), value by value. y: the step's values, rows that follow
// each other, as those of `to` do. Only values that the formula has are read (RegionGradientPlan). Formulas are
// PyTorch's, for 0, inf and NaN too. `to` must not overlap the others.
template <class T>
void ValueGradient(const RegionStep& step, int k, const RegionValues<T>& in, const T* y, const RegionRows<T>& g,
                   int64_t rows, T* to);

// out[i] = a[i] + b[i]; `out` may be either.
template <class T>
void AddValues(const T* a, const T* b, int64_t n, T* out);

}  // namespace permafrost::nn
