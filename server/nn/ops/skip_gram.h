// The step of skip-gram over random walks: loss and gradient at once, permafrost::skip_gram; and the scores alone,
// permafrost::walk_scores. On the CPU a walk's rows are read, scored and differentiated while they are in cache, with
// equal bits for any number of threads; nothing is made for a pair but its score.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/loss.h"

namespace permafrost::nn {

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

// [walks, windows * (context - 1)]: the dot products of the pairs of each walk (nn/kernels/skip_gram.h).
at::Tensor WalkScores(const at::Tensor& table, const at::Tensor& walks, int64_t context);

}  // namespace permafrost::nn
