// One linear map over rows, with ReLU, and its gradients.
// Weights are [out, in] and are packed once for all rows (PackForward and PackBackward of mlp.h); the rows may be
// worked through in chunks on several threads. Threads: any. Sums are in the order of rows and columns, whatever the
// thread.
#pragma once

#include <cstdint>

#include "nn/kernels/mlp.h"

namespace permafrost::nn {

struct LinearWidths {
  int64_t in = 0, out = 0;
  Products products = Products::kFull;
};

// y [rows, out] = a * weight^T + bias, relu of it where told, which keeps NaN. a: [rows, in]; packed: by PackForward
// for the same products.
template <class T>
void LinearForward(const LinearWidths& widths, int64_t rows, const T* a, const T* packed, const T* bias, bool relu,
                   T* y);

// y = a + bias + addend, relu of it where told, which keeps NaN. a, y: [rows, width], which may be the same; addend:
// likewise, or null.
template <class T>
void AddBiasActivate(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y);

// g [rows, width] = grad, or where y is told (not null): grad * kept where y is above 0, and 0 elsewhere. sums [width]:
// of g over the rows.
template <class T>
void ActivationGradient(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums);

// Computes from g [rows, out]: gw [out, in], the sum over these rows, and, unless `packed` is null, ga [rows, in]. a:
// [rows, in]; packed: by PackBackward; scratch: LinearScratch values, for its own use.
template <class T>
void LinearBackward(const LinearWidths& widths, int64_t rows, const T* a, const T* g, const T* packed, T* scratch,
                    T* ga, T* gw);
template <class T>
int64_t LinearScratch(const LinearWidths& widths, int64_t rows);

}  // namespace permafrost::nn
