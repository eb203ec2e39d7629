// Losses and error sums over the labels that are there: padding graphs and missing labels are NaN and take no part.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/config.h"

namespace permafrost::nn {

struct LossTerms {
  at::Tensor mean;   // scalar, differentiable: the loss of this batch (0 where no label is present)
  at::Tensor sum;    // scalar, detached: sum of the loss over present labels
  at::Tensor count;  // scalar, detached: labels present
};

// prediction: [G, T]; labels: [G, T], NaN where missing.
LossTerms ComputeLoss(Loss loss, const at::Tensor& prediction, const at::Tensor& labels);

}  // namespace permafrost::nn
