// Computes losses: over the labels that are there, where padding graphs and missing labels are NaN and take no part;
// and that of skip-gram over random walks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

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

// The step of skip-gram over random walks: loss and gradient at once, permafrost::skip_gram; and the scores alone,
// permafrost::walk_scores. On the CPU a walk's rows are read, scored and differentiated while they are in cache, with
// equal bits for any number of threads; nothing is made for a pair but its score.

// The order of the walks of a batch: `per_seed` walks of each seed, then `negatives` as many of random nodes.
struct WalkLayout {
  int64_t context = 10;   // nodes of a window, 2..length
  int64_t per_seed = 10;  // walks
  int64_t negatives = 1;  // random walks beside each
  int64_t all() const { return per_seed * (1 + negatives); }
};

struct SkipGramStep {
  // The loss of PyG's Node2Vec.loss: the mean over the pairs of walks of -log(sigmoid(score) + 1e-15), plus the mean
  // over those of negatives of -log(1 - sigmoid(score) + 1e-15). `sum` and `count` are by seeds; `mean` has no gradient
  // of autograd's.
  LossTerms terms;
  at::Tensor parts;  // [walks * length, D]: the gradient of each node of each walk, 0 in padding
};

// table: [N, D]; walks: [seeds * layout.all(), length] int64, rows of the table, padded seeds last in each kind; seeds:
// [1] int64, the real ones, >= 1.
SkipGramStep SkipGram(const at::Tensor& table, const at::Tensor& walks, const at::Tensor& seeds,
                      const WalkLayout& layout);

// Returns the mean loss of such scores, with the terms of SkipGramStep.
double MeanWalkLoss(const at::Tensor& scores, bool negative);

// [walks, windows * (context - 1)]: the dot products of the pairs of each walk (nn/kernels/losses.h).
at::Tensor WalkScores(const at::Tensor& table, const at::Tensor& walks, int64_t context);

}  // namespace permafrost::nn
