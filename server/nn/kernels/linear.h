// One linear map over rows, with ReLU, and its gradients.
// Weights are [out, in] and are packed once for all rows (PackForward and PackBackward of mlp.h); the rows may be
// worked through in chunks on several threads. Threads: any. Sums are in the order of rows and columns, whatever the
// thread.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// y [rows, out] = a * weight^T + bias, relu of it where told, which keeps NaN. a: [rows, in]; packed: by PackForward.
template <class T>
void LinearForward(int64_t rows, int64_t in, int64_t out, const T* a, const T* packed, const T* bias, bool relu, T* y);

// y = a + bias + addend, relu of it where told, which keeps NaN. a, y: [rows, width], which may be the same; addend:
// likewise, or null.
template <class T>
void AddBiasActivate(const T* a, const T* bias, const T* addend, bool relu, int64_t rows, int64_t width, T* y);

// g [rows, width] = grad, or where y is told (not null): grad * kept where y is above 0, and 0 elsewhere. sums [width]:
// of g over the rows.
template <class T>
void ActivationGradient(const T* grad, const T* y, T kept, int64_t rows, int64_t width, T* g, T* sums);

// Of g [rows, out]: gw [out, in], the sum over these rows, and, unless `packed` is null, ga [rows, in]. a: [rows, in];
// packed: by PackBackward; scratch: LinearScratch values, for its own use.
template <class T>
void LinearBackward(int64_t rows, int64_t in, int64_t out, const T* a, const T* g, const T* packed, T* scratch, T* ga,
                    T* gw);
template <class T>
int64_t LinearScratch(int64_t rows, int64_t in);

}  // namespace permafrost::nn
