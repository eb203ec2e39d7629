// Products of float32 matrices. Both factors are rounded to bfloat16 as they are packed. The instruction VDPBF16PS of
// AVX512-BF16 adds the products up in float32. It takes two products at once, and treats subnormal numbers as 0.
// Results, biases and later operations stay float32. Call these functions only if HasBfloat16Products() returns true.
// Threads: any. Sums are added up in the order of rows and columns, whichever thread runs. Each thread keeps memory
// for the rounded rows of its largest product.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// Returns whether this processor multiplies bfloat16.
bool HasBfloat16Products();

// Returns how many floats a packed [k, n] matrix takes.
int64_t Bfloat16PackedSize(int64_t k, int64_t n);
// Both functions pack weight [out, in]: PackBfloat16Forward for rows * weight^T, and PackBfloat16Backward for the
// backward's rows * weight.
void PackBfloat16Forward(const float* weight, int64_t out, int64_t in, float* packed);
void PackBfloat16Backward(const float* weight, int64_t out, int64_t in, float* packed);

// y [rows, out] = a [rows, in] * weight^T + bias, then ReLU if `relu` is set; NaN stays NaN. packed: from
// PackBfloat16Forward.
void Bfloat16Linear(int64_t rows, int64_t in, int64_t out, const float* a, const float* packed, const float* bias,
                    bool relu, float* y);
// ga [rows, in] = g [rows, out] * weight. If `active` [rows, in] is not null, ga is 0 wherever `active` is not above
// 0. packed: from PackBfloat16Backward.
void Bfloat16InputGradient(int64_t rows, int64_t in, int64_t out, const float* g, const float* packed,
                           const float* active, float* ga);
// to [m, n] = left^T * right, where left is [rows, m] and right is [rows, n].
void Bfloat16Outer(int64_t rows, int64_t m, int64_t n, const float* left, const float* right, float* to);
// sums [width] = the column sums of values [rows, width].
void Bfloat16ColumnSums(int64_t rows, int64_t width, const float* values, float* sums);

}  // namespace permafrost::nn
