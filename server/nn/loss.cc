#include "nn/loss.h"

#include <ATen/ATen.h>

namespace permafrost::nn {

LossTerms ComputeLoss(Loss loss, const at::Tensor& prediction, const at::Tensor& labels) {
  const at::Tensor present = labels.eq(labels);
  const at::Tensor zero = at::zeros({}, prediction.options());
  // `where` on both sides: neither a NaN label nor a NaN prediction of a padding row reaches the sum or the gradient.
  const at::Tensor difference = at::where(present, prediction - at::where(present, labels, zero), zero);
  const at::Tensor sum = loss == Loss::kL1 ? difference.abs().sum() : (difference * difference).sum();
  const at::Tensor count = present.sum().to(prediction.scalar_type());
  return {sum / count.clamp_min(1), sum.detach(), count};
}

}  // namespace permafrost::nn
