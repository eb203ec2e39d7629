// Computes losses with their gradients: losses of classes, and the loss of skip-gram over random walks.
// Threads: any, each with rows or walks of its own. Sums are added up in float64, in the order of rows.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// Losses of classes. A label that is NaN is missing: it adds nothing, and its gradient is 0 whatever the prediction.
// A NaN anywhere else makes the sum and the gradient NaN.

// Returns the sum over rows of weights[label] * -log softmax(logits)[label], and writes its gradient times `scale`.
// logits, gradient: [rows, classes]; labels: [rows], whole numbers in [0, classes), or NaN; weights: [classes], or
// null (all 1).
template <class T>
double CrossEntropyRows(const T* logits, const T* labels, const T* weights, int64_t rows, int64_t classes, T scale,
                        T* gradient);

// Returns the sum of weights[label] * (-label * log sigmoid(logit) - (1 - label) * log(1 - sigmoid(logit))), and
// writes its gradient times `scale`. logits, labels, gradient: [size]; weights: [2], for labels 0 and 1, or null (all
// 1).
template <class T>
double BinaryCrossEntropy(const T* logits, const T* labels, const T* weights, int64_t size, T scale, T* gradient);

// Skip-gram over random walks: the scores of a walk's pairs, their loss, and the gradient of the walk's rows.
// Source: Mikolov et al. 2013, "Distributed representations of words and phrases", section 2.2; pairs and loss equal
// those of torch_geometric.nn.Node2Vec.

// Each of the first windows() nodes of a walk forms a pair with each of the context - 1 nodes after it.
struct WalkShape {
  int64_t length, context, dimension;  // 2 <= context <= length; dimension: values of a row
  int64_t windows() const { return length - context + 1; }
  int64_t pairs() const { return windows() * (context - 1); }
};

// scores[j * (context - 1) + t] = the dot product of the rows of nodes j and j + 1 + t. walk: [length], the numbers
// of the nodes' rows in `table`.
template <class T>
void ScoreWalk(const WalkShape& shape, const T* table, const int64_t* walk, T* scores);

// Returns the sum of the pairs' losses. A pair's loss is -log(p + 1e-15), where p is sigmoid(score), or 1 -
// sigmoid(score) if `negative`. Overwrites the scores with the derivatives of the losses by the scores.
template <class T>
double LossOfPairs(bool negative, int64_t count, T* scores);

// Writes gradients, [length, dimension]: for each node of the walk, the sum of its gradients from all pairs that
// contain it, times `scale`. derivatives: [pairs], the derivatives that LossOfPairs has written.
template <class T>
void GradientOfWalk(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale,
                    T* gradients);

}  // namespace permafrost::nn
