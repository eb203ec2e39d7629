// Losses over the labels that are there, each one operator with its gradient: permafrost::regression_loss,
// permafrost::cross_entropy_loss, permafrost::binary_cross_entropy_loss. Labels are NaN where missing, as of padding.
#pragma once

#include "nn/loss.h"

namespace permafrost::nn {

// As ComputeLoss, on the CPU. prediction: float32 or float64; labels, class_weights: of any type that becomes its type.
// The sum is made in float64. Neither missing labels at the end nor the number of threads change a bit of anything.
// Errors: sizes that do not fit each other, and a label that is no class.
LossTerms MaskedLoss(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                     const at::Tensor& class_weights);

}  // namespace permafrost::nn
