// Linear maps over rows, and their gradients: a single map, or two maps with ReLU between. Weights are [out, in], and
// are packed once for all rows. Several threads may process the rows in chunks. Each function is compiled for several
// instruction sets, one of which is chosen at run time.
// Threads: any. Sums are added up in the order of rows and columns, whichever thread runs.
#pragma once

#include <cstdint>
#include <type_traits>

namespace permafrost::nn {

// The precision of matrix products. kBfloat16 rounds both factors to the nearest bfloat16 and adds the products up in
// float32. It is for float32 matrices only.
enum class Products { kFull, kBfloat16 };

template <class T>
inline constexpr bool IsFloat32 = std::is_same_v<T, float>;
template <class T>
constexpr bool IsBfloat16(Products products) {
  return IsFloat32<T> && products == Products::kBfloat16;
}

// Returns how many values a packed [k, n] matrix takes.
template <class T>
int64_t PackedSize(int64_t k, int64_t n, Products products);

// weight: [out, in]. PackForward packs it for rows * weight^T, and PackBackward for the backward's rows * weight.
template <class T>
void PackForward(const T* weight, int64_t out, int64_t in, Products products, T* packed);
template <class T>
void PackBackward(const T* weight, int64_t out, int64_t in, Products products, T* packed);

// Returns how many scratch values a backward pass needs.
template <class T>
int64_t ProductScratch(int64_t rows, Products products);

// One linear map with an optional ReLU, and its gradients.
struct LinearWidths {
  int64_t in = 0, out = 0;
  Products products = Products::kFull;
};

// y [rows, out] = a * weight^T + bias, then ReLU if `relu` is set; NaN stays NaN. a: [rows, in]; packed: from
// PackForward with the same products.
template <class T>
void LinearForward(const LinearWidths& widths, int64_t rows, const T* a, const T* packed, const T* bias, bool relu,
                   T* y);

// y = a + bias + addend, then ReLU if `relu` is set; NaN stays NaN. a, y: [rows, width], may be the same memory.
// addend: [rows, width], or null.
template <class T>
void AddBiasActivate(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y);

// g [rows, width] = grad if y is null. Otherwise g is 0 where y <= 0, and grad * kept elsewhere, also where y is NaN.
// sums [width] = the sums of g over the rows. If the pointer g is null, only `sums` is written.
template <class T>
void ActivationGradient(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums);

// Computes gradients from g, [rows, out]. Writes ga [rows, in] unless `packed` is null. Writes gw [out, in], the sum
// over these rows, unless `gw` is null. a: [rows, in]; packed: from PackBackward; scratch: ProductScratch values.
template <class T>
void LinearBackward(const LinearWidths& widths, int64_t rows, const T* a, const T* g, const T* packed, T* scratch,
                    T* ga, T* gw);

// Two linear maps with ReLU between: z1 = relu(a * w1^T + b1), z2 = z1 * w2^T + b2, and all gradients.
struct MlpWidths {
  int64_t in = 0, hidden = 0, out = 0;
  Products products = Products::kFull;
};

// Writes z1 [rows, hidden] and z2 [rows, out]. a: [rows, in]; first, second: from PackForward with the same products.
template <class T>
void MlpForward(const MlpWidths& widths, int64_t rows, const T* a, const T* first, const T* first_bias, const T* second,
                const T* second_bias, T* z1, T* z2);

// The weight gradients that MlpBackward writes: [hidden, in], [hidden], [out, hidden], [out].
template <class T>
struct MlpGradients {
  T *first, *first_bias, *second, *second_bias;
};

// Writes ga [rows, in] and the weights' gradients, summed over these rows. gz2: [rows, out]; first, second: from
// PackBackward; gz1: memory for [rows, hidden]; scratch: ProductScratch values.
template <class T>
void MlpBackward(const MlpWidths& widths, int64_t rows, const T* a, const T* z1, const T* gz2, const T* first,
                 const T* second, T* gz1, T* scratch, T* ga, const MlpGradients<T>& weights);

}  // namespace permafrost::nn
