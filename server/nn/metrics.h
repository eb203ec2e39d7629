// Computes metrics on the host, from all predictions of a split together. Metrics of link prediction tell how high
// links rank among pairs without an edge.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/loss.h"

namespace permafrost::nn {

// Returns the area under the ROC curve: the probability that a positive row scores above a negative one; a tie counts
// as 1/2. As in OGB's evaluator, the areas are averaged over the targets that have both positive and negative rows.
// scores, labels: [rows * targets], row-major. A label above 0.5 is positive, and NaN is missing. Returns NaN if no
// target has rows of both kinds, or if the score of a labelled row is NaN.
double RocAuc(std::span<const float> scores, std::span<const float> labels, int64_t targets);

// Computes `metric` over all rows of a split, for a model trained by `loss`. outputs: [rows * width]. labels: [rows]
// classes for kCrossEntropy, else [rows * width]; NaN where missing. Returns NaN if the metric is undefined.
//   kMae, kRmse: over all labels.
//   kR2: 1 - squared errors / squared distances to the mean, averaged over the targets with two labels or more. If a
//     target's labels do not vary, its R2 is 1 if all its outputs are right, else 0.
//   kAccuracy: for kCrossEntropy, the result of Accuracy (below). For kBce, the fraction of labels for which the
//     output has the right sign.
//   kF1Macro: the mean F1 over the classes that occur as a label or as a prediction. For kBce, the mean F1 over the
//     targets, where label 1 is positive.
//   kF1Micro: the F1 of the counts summed over all classes or targets.
//     Both F1 metrics: F1 is 0 if there are neither positive labels nor positive predictions.
//   kRocAuc, kAveragePrecision: for kCrossEntropy with two classes, the metric of the second class. With more
//     classes, each class is ranked against the rest by its probability, and the results are averaged.
// The results equal those of scikit-learn's r2_score, accuracy_score, f1_score(zero_division=0),
// roc_auc_score(multi_class="ovr").
double ComputeMetric(spec::Metric metric, spec::Loss loss, std::span<const float> outputs,
                     std::span<const float> labels, int64_t width);

// Returns the fraction of rows whose largest output is at the label's class; the first of equal outputs counts as the
// largest. Rows with a NaN label take no part, and rows with a NaN output are wrong. outputs: [rows * classes];
// labels: [rows]. Returns NaN if no row has a label.
double Accuracy(std::span<const float> outputs, std::span<const float> labels, int64_t classes);

// Scores of a split's links and of their negatives. The negatives are ordered by link, and each link has the same
// number of them. If `share` is true, all links share one list of negatives, and each negative has one score.
struct LinkScores {
  std::span<const float> links, negatives;
  bool share = false;
};

// Returns the rank of each link, from 1, among its own negatives or the shared ones. Among equal scores the rank is
// the mean of the best and the worst place that the link could have. The rank is NaN if the score of the link or of
// one of its negatives is NaN.
// Source: OGB's Evaluator of ogbl-citation2.
std::vector<float> RanksOf(const LinkScores& scores);

// Returns a metric of link prediction.
//   kMrr: the mean of 1 / rank.
//   kHitsAt...: the fraction of links that score above the K-th highest score of all negatives together; 1 if there
//     are fewer than K negatives (OGB's Evaluator of ogbl-collab).
//   All metrics not named above: ComputeMetric for kBce, where links have label 1 and all negatives label 0.
// Returns NaN if there are no links, or if a score is NaN.
double ComputeLinkMetric(spec::Metric metric, const LinkScores& scores);

}  // namespace permafrost::nn
