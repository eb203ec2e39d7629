// Metrics of link prediction: how high links rank among pairs without an edge. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/loss.h"

namespace permafrost::nn {

// Scores of a split's links, and of the negatives of each: links.size() * each, link after link; or of negatives that
// all links `share`, as many as there are.
struct LinkScores {
  std::span<const float> links, negatives;
  bool share = false;
};

// Returns the place of each link among its own negatives, or those that all share, from 1: the mean of the places that
// it has where all equal scores are below it, and above it. NaN for a link, or with a negative, whose score is NaN.
// Source: OGB's Evaluator of ogbl-citation2.
std::vector<float> RanksOf(const LinkScores& scores);

// kMrr: the mean of 1 / rank. kHitsAt...: the part of the links that score above the K-th highest of all negatives
// together; 1 where there are fewer (OGB's Evaluator of ogbl-collab). Others: as ComputeMetric of kBce, with links as
// label 1 and all negatives as 0. NaN where there are no links or a score is NaN.
double ComputeLinkMetric(spec::Metric metric, const LinkScores& scores);

}  // namespace permafrost::nn
