// Skip-gram over random walks: the scores of a walk's pairs, their loss, and the gradient of the walk's rows.
// Source: Mikolov et al. 2013, "Distributed representations of words and phrases", section 2.2; pairs and loss as those
// of torch_geometric.nn.Node2Vec. Threads: any, each with walks of its own.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// Each of a walk's first windows() nodes makes a pair with each of the context - 1 nodes after it.
struct WalkShape {
  int64_t length, context, dimension;  // 2 <= context <= length; values of a row
  int64_t windows() const { return length - context + 1; }
  int64_t pairs() const { return windows() * (context - 1); }
};

// scores[j * (context - 1) + t]: the dot product of the rows of nodes j and j + 1 + t. walk: [length] rows of `table`.
template <class T>
void ScoreWalk(const WalkShape& shape, const T* table, const int64_t* walk, T* scores);

// The sum of the pairs' losses, -log(sigmoid(score) + 1e-15), or of negatives -log(1 - sigmoid(score) + 1e-15); their
// derivatives by the score take the place of the scores.
template <class T>
double LossOfPairs(bool negative, int64_t count, T* scores);

// gradients: [length, dimension], of each node of the walk the sum of the pairs that it is in, times `scale`.
// derivatives: [pairs] as LossOfPairs leaves them.
template <class T>
void GradientOfWalk(const WalkShape& shape, const T* table, const int64_t* walk, const T* derivatives, T scale,
                    T* gradients);

}  // namespace permafrost::nn
