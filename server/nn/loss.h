// Computes losses over the labels that are present, and the skip-gram loss over random walks. A label is NaN if it is
// missing or belongs to a padding graph. NaN labels take no part in a loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/loss.h"

namespace permafrost::nn {

struct LossTerms {
  at::Tensor mean;   // scalar, differentiable: the loss of this batch (0 where no label is present)
  at::Tensor sum;    // scalar, detached: sum of the loss over all present labels
  at::Tensor count;  // scalar, detached: number of present labels
};

// Computes the loss of [G, T] predictions and [G, T] labels, which are NaN where missing. kCrossEntropy takes
// [G, classes] logits and [G, 1] labels, which are whole numbers in 0..classes-1. kBce takes [G, T] logits, and
// labels that are 0 or 1.
// class_weights: undefined, or [classes] float32; for kBce [2], the weights of labels 0 and 1. With class weights,
// each term is multiplied by the weight of its class. `count` is then the sum of these weights, and `mean` is sum /
// count, as in torch.nn.CrossEntropyLoss(weight). On the CPU each loss is one operator.
LossTerms ComputeLoss(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                      const at::Tensor& class_weights = {});

// Computes the result of ComputeLoss by PyTorch's operators. It is the reference, and runs wherever the fused
// operator does not.
LossTerms ComputeLossPlain(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                           const at::Tensor& class_weights = {});

// Computes the result of ComputeLoss by one fused operator with its gradient: permafrost::regression_loss,
// permafrost::cross_entropy_loss or permafrost::binary_cross_entropy_loss. The CPU runs all three, and a GPU with
// compiled kernels (nn/gpu) runs the first two. prediction: float32 or float64; labels and class_weights are
// converted to that type. On the CPU the sum is computed in float64. The bits of the results depend neither on
// missing labels at the end nor on the number of threads. Errors: c10::Error if sizes do not match, or if a label is
// not a class.
LossTerms MaskedLoss(spec::Loss loss, const at::Tensor& prediction, const at::Tensor& labels,
                     const at::Tensor& class_weights);

// The skip-gram step over random walks. permafrost::skip_gram computes loss and gradient at once.
// permafrost::walk_scores computes the scores alone. On the CPU a walk's rows are read, scored and differentiated
// while they are in cache. Bits are equal for any number of threads, and a pair takes no memory except for its score.

// The order of the walks in a batch: first `per_seed` walks for each seed, then `negatives` times as many walks of
// random nodes.
struct WalkLayout {
  int64_t context = 10;   // nodes in a window, 2..length
  int64_t per_seed = 10;  // walks from each seed
  int64_t negatives = 1;  // negative walks for each walk from a seed
  int64_t all() const { return per_seed * (1 + negatives); }
};

struct SkipGramStep {
  // The loss of PyG's Node2Vec.loss: the mean of -log(sigmoid(score) + 1e-15) over the pairs of walks, plus the mean
  // of -log(1 - sigmoid(score) + 1e-15) over the pairs of negative walks. `count` is the number of real seeds, and
  // `sum` is the loss times `count`. `mean` carries no autograd gradient.
  LossTerms terms;
  at::Tensor parts;  // [walks * length, D]: the gradient of each node in each walk; 0 in padding
};

// table: [N, D]. walks: [S * layout.all(), length] int64, rows of the table, where S counts real and padding seeds.
// Among the walks of each kind, the walks of padding seeds come last. seeds: [1] int64, the number of real seeds, at
// least 1.
SkipGramStep SkipGram(const at::Tensor& table, const at::Tensor& walks, const at::Tensor& seeds,
                      const WalkLayout& layout);

// Returns the mean loss of WalkScores, with the formulas of SkipGramStep::terms. `negative` tells whether the scores
// are those of negative walks.
double MeanWalkLoss(const at::Tensor& scores, bool negative);

// Returns [walks, windows * (context - 1)], the dot products of the pairs of each walk (nn/kernels/losses.h).
at::Tensor WalkScores(const at::Tensor& table, const at::Tensor& walks, int64_t context);

}  // namespace permafrost::nn
