// Losses and error sums over the labels that are there: padding graphs and missing labels are NaN and take no part.
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/loss.h"

namespace permafrost::nn {

struct LossTerms {
  at::Tensor mean;   // scalar, differentiable: the loss of this batch (0 where no label is present)
  at::Tensor sum;    // scalar, detached: sum of the loss over present labels
  at::Tensor count;  // scalar, detached: labels present
};

// prediction: [G, T]; labels: [G, T], NaN where missing. kCrossEntropy: prediction [G, classes] logits, labels [G, 1]
// of whole numbers 0..classes-1. kBce: prediction [G, T] logits, labels 0 or 1. class_weights: undefined, or [classes]
// ([2] for kBce: of labels 0 and 1), float32: each term is weighted by its label's class, `count` is then the sum of
// these weights and `mean` is divided by it, as torch.nn.CrossEntropyLoss(weight). On the CPU one operator.
LossTerms ComputeLoss(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                      const at::Tensor& class_weights = {});

// Computes the same with PyTorch's operators. It is the reference, and runs on devices other than the CPU.
LossTerms ComputeLossPlain(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                           const at::Tensor& class_weights = {});

// Does the same as ComputeLoss, on the CPU: each loss is one operator with its gradient, permafrost::regression_loss,
// permafrost::cross_entropy_loss or permafrost::binary_cross_entropy_loss. prediction: float32 or float64; labels,
// class_weights: of any type that becomes its type. The sum is made in float64. Neither missing labels at the end nor
// the number of threads change a bit of anything. Errors: sizes that do not fit each other, and a label that is no
// class.
LossTerms MaskedLoss(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                     const at::Tensor& class_weights);

}  // namespace permafrost::nn
