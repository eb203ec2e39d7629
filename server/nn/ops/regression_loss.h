// The loss of numbers over the labels that are there, with its gradient, as one operator: permafrost::regression_loss.
#pragma once

#include "nn/loss.h"

namespace permafrost::nn {

// As ComputeLoss for kL1 and kMse. CPU; prediction: [G, T] float32 or float64; labels: [G, T] float32 or float64.
LossTerms RegressionLoss(Loss loss, const at::Tensor& prediction, const at::Tensor& labels);

}  // namespace permafrost::nn
