// One update of Adam or AdamW over a range of values. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.
// Threads: any, each with a range of its own. Each value's update depends on that value alone.
#pragma once

#include <cstdint>

namespace permafrost::nn {

struct AdamUpdate {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double learning_rate = 0, weight_decay = 0;
  bool decoupled = false;  // true: weight decay shrinks the value (AdamW); false: it is added to the gradient
  // Bias corrections: 1 - beta1^step and 1 - beta2^step.
  double correction1 = 1, correction2 = 1;
};

// m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2,
// value -= learning_rate / correction1 * m / (sqrt(v / correction2) + eps).
template <class T>
void AdamStep(const AdamUpdate& update, int64_t size, const T* gradient, T* value, T* m, T* v);

}  // namespace permafrost::nn
