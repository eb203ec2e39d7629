// Losses of classes, with their gradients. A label that is NaN is missing: it adds nothing, and its gradient is 0
// whatever was predicted. Elsewhere a NaN shows in the sum and in the gradient.
// Threads: any, each with rows of its own. Sums are made in float64, in the order of rows.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// Returns the sum over rows of weights[label] * -log softmax(logits)[label], and writes scale times its gradient.
// logits, gradient: [rows, classes]; labels: [rows], whole numbers in [0, classes), or NaN; weights: [classes], or
// null: all 1.
template <class T>
double CrossEntropyRows(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes, T scale,
                        T* gradient);

// Does the same for weights[label] * (-label * log sigmoid(logit) - (1 - label) * log(1 - sigmoid(logit))).
// logits, labels, gradient: [size]; weights: [2], for labels 0 and 1, or null: all 1.
template <class T>
double BinaryCrossEntropy(const T* logits, const T* labels, const T* weights, int64_t size, T scale, T* gradient);

}  // namespace permafrost::nn
