// Products of float32 matrices whose factors are rounded to bfloat16 as they are packed, and added up in float32 by the
// processor's own instruction (AVX512-BF16's VDPBF16PS, two products at once, which treats subnormal numbers as 0).
// Results, biases and what follows a product stay float32. Only where HasBfloat16Products.
// Threads: any. Sums are in the order of rows and columns, whatever the thread. Each thread keeps room for the rounded
// rows of its largest product.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// Returns whether this processor multiplies bfloat16.
bool HasBfloat16Products();

// Floats that hold a packed matrix of [k, n].
int64_t Bfloat16PackedSize(int64_t k, int64_t n);
// They pack weight [out, in]: Forward for rows * weight^T, Backward for the gradients' product, rows * weight.
void PackBfloat16Forward(const float* weight, int64_t out, int64_t in, float* packed);
void PackBfloat16Backward(const float* weight, int64_t out, int64_t in, float* packed);

// y [rows, out] = a [rows, in] * weight^T + bias, relu of it where told, which keeps NaN. packed: by
// PackBfloat16Forward.
void Bfloat16Linear(int64_t rows, int64_t in, int64_t out, const float* a, const float* packed, const float* bias,
                    bool relu, float* y);
// ga [rows, in] = g [rows, out] * weight; 0 where `active` [rows, in], if it is not null, is not above 0. packed: by
// PackBfloat16Backward.
void Bfloat16InputGradient(int64_t rows, int64_t in, int64_t out, const float* g, const float* packed,
                           const float* active, float* ga);
// to [m, n] = left^T * right, of [rows, m] and [rows, n].
void Bfloat16Outer(int64_t rows, int64_t m, int64_t n, const float* left, const float* right, float* to);
// sums [width]: of rows [rows, width].
void Bfloat16ColumnSums(int64_t rows, int64_t width, const float* values, float* sums);

}  // namespace permafrost::nn
