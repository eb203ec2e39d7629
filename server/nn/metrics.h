// Metrics that are computed from every prediction of a split together, on the host; those of link prediction say how
// high links rank among pairs without an edge.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/loss.h"

namespace permafrost::nn {

// Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half; mean over
// the targets that have rows of both kinds, as OGB's evaluator. scores, labels: [rows * targets], row-major; a label is
// positive above 0.5, NaN is missing. NaN where no target has both kinds, or a labelled row's score is NaN.
double RocAuc(std::span<const float> scores, std::span<const float> labels, int64_t targets);

// The metric over all rows of a split, of a model trained by `loss`; `metric` measures it. outputs: [rows * width];
// labels: NaN where missing, [rows] classes for kCrossEntropy, else [rows * width]. NaN where nothing can be said.
//   kMae, kRmse: over all labels. kR2: 1 - squared errors / squared distances to the mean, mean over the targets with
//   two
//     labels or more; of a target that does not vary 1 where all is right, else 0.
//   kAccuracy: of kCrossEntropy as Accuracy; of kBce the part of the labels on whose side of 0 the output is.
//   kF1Macro: mean over the classes that are a label or an answer; of kBce over the targets, of label 1. kF1Micro: of
//   all
//     counts together. Without anything to find and anything found F1 is 0.
//   kRocAuc, kAveragePrecision: of kCrossEntropy with two classes of the second one; of more of each against the rest
//   by
//     its probability, mean over the classes.
// As scikit-learn's r2_score, accuracy_score, f1_score(zero_division=0), roc_auc_score(multi_class="ovr").
double ComputeMetric(spec::Metric metric, spec::Loss loss, std::span<const float> outputs,
                     std::span<const float> labels, int64_t width);

// Part of the rows whose largest output (of equal ones the first) is the label's class; rows with a NaN label take no
// part, rows with a NaN output are wrong. outputs: [rows * classes]; labels: [rows]. NaN where no row has a label.
double Accuracy(std::span<const float> outputs, std::span<const float> labels, int64_t classes);

// Scores of a split's links, and of their negatives: links.size() * each scores, link after link. If all links `share`
// the negatives, there is one score for each negative.
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
