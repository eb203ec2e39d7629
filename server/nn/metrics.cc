#include "nn/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace permafrost::nn {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// rows: (score, true if positive) for each row of one target, in any order. Returns NaN if there is no positive row
// or no negative row.
double AreaUnderCurve(std::vector<std::pair<float, bool>>& rows) {
  std::ranges::sort(rows, {}, &std::pair<float, bool>::first);
  // Counts half points, so that all counts are whole numbers: a negative below a positive counts 2, a tie counts 1.
  double halves = 0, negatives_below = 0, positives = 0;
  for (auto tie = rows.begin(); tie != rows.end();) {
    const auto end = std::find_if(tie, rows.end(), [&](const auto& row) { return row.first > tie->first; });
    const auto up = static_cast<double>(std::count_if(tie, end, [](const auto& row) { return row.second; }));
    const double down = static_cast<double>(end - tie) - up;
    halves += up * (2 * negatives_below + down);
    negatives_below += down;
    positives += up;
    tie = end;
  }
  return positives == 0 || negatives_below == 0 ? kNan : halves / (2 * positives * negatives_below);
}

// Returns the area under the precision-recall curve as a sum of steps: the sum of (R_n - R_n-1) * P_n over all
// thresholds. Rows of equal score form one threshold (scikit-learn's average_precision_score).
double PrecisionArea(std::vector<std::pair<float, bool>>& rows) {
  std::ranges::sort(rows, std::ranges::greater(), &std::pair<float, bool>::first);
  double found = 0, seen = 0, sum = 0;
  for (auto tie = rows.begin(); tie != rows.end();) {
    const auto end = std::find_if(tie, rows.end(), [&](const auto& row) { return row.first < tie->first; });
    const auto up = static_cast<double>(std::count_if(tie, end, [](const auto& row) { return row.second; }));
    seen += static_cast<double>(end - tie);
    found += up;
    sum += up * found / seen;
    tie = end;
  }
  return found == 0 || found == seen ? kNan : sum / found;
}

using Area = double (*)(std::vector<std::pair<float, bool>>& rows);

Area AreaOf(spec::Metric metric) { return metric == spec::Metric::kRocAuc ? AreaUnderCurve : PrecisionArea; }

// Returns the mean of `area` over the columns for which `area` is not NaN. score_of(row, column) and label_of(row,
// column) return the values of a row.
template <class Score, class Label>
double MeanOverColumns(size_t count, size_t columns, const Score& score_of, const Label& label_of, Area area) {
  double sum = 0;
  int64_t counted = 0;
  std::vector<std::pair<float, bool>> rows;
  rows.reserve(count);
  for (size_t c = 0; c < columns; ++c) {
    rows.clear();
    for (size_t r = 0; r < count; ++r) {
      const float label = label_of(r, c);
      if (std::isnan(label)) continue;
      const float score = score_of(r, c);
      if (std::isnan(score)) return kNan;
      rows.emplace_back(score, label > 0.5F);
    }
    const double value = area(rows);
    if (std::isnan(value)) continue;
    sum += value;
    ++counted;
  }
  return counted == 0 ? kNan : sum / static_cast<double>(counted);
}

double MeanOverTargets(std::span<const float> scores, std::span<const float> labels, int64_t targets, Area area) {
  const auto width = static_cast<size_t>(targets);
  return MeanOverColumns(
      labels.size() / width, width, [&](size_t r, size_t t) { return scores[r * width + t]; },
      [&](size_t r, size_t t) { return labels[r * width + t]; }, area);
}

// Ranks each class against the others by its probability. With two classes, ranks only the second class, by its
// output minus the first class's output. Handles one class after another, because handling all classes at once would
// take memory for rows * classes scores.
double MeanAgainstRest(std::span<const float> outputs, std::span<const float> labels, size_t classes, Area area) {
  const auto label_of = [&](size_t r, size_t c) {
    return std::isnan(labels[r]) ? labels[r] : static_cast<float>(labels[r] == static_cast<float>(c));
  };
  if (classes == 2) {
    return MeanOverColumns(
        labels.size(), 1, [&](size_t r, size_t) { return outputs[2 * r + 1] - outputs[2 * r]; },
        [&](size_t r, size_t) { return label_of(r, 1); }, area);
  }
  struct Softmax {
    double top = 0, sum = 0;
  };
  std::vector<Softmax> of_rows(labels.size());
  for (size_t r = 0; r < labels.size(); ++r) {
    const std::span<const float> row = outputs.subspan(r * classes, classes);
    of_rows[r].top = *std::ranges::max_element(row);
    for (const float output : row) of_rows[r].sum += std::exp(static_cast<double>(output) - of_rows[r].top);
  }
  const auto probability_of = [&](size_t r, size_t c) {
    return static_cast<float>(std::exp(static_cast<double>(outputs[r * classes + c]) - of_rows[r].top) /
                              of_rows[r].sum);
  };
  return MeanOverColumns(labels.size(), classes, probability_of, label_of, area);
}

// Counts of one class or target: right answers, wrong answers, and labels that were missed.
struct Counts {
  double right = 0, wrong = 0, missed = 0;
  bool any() const { return right + wrong + missed > 0; }
  double f1() const { return any() ? 2 * right / (2 * right + wrong + missed) : 0; }
};

// If `everyone` is true, a class or target whose counts are all 0 enters the mean of F1 as 0. Otherwise the mean
// leaves it out.
double F1(const std::vector<Counts>& counts, spec::Metric metric, bool everyone) {
  Counts all;
  double sum = 0;
  int64_t counted = 0;
  for (const Counts& one : counts) {
    all = {all.right + one.right, all.wrong + one.wrong, all.missed + one.missed};
    if (!one.any() && !everyone) continue;
    sum += one.f1();
    ++counted;
  }
  if (metric == spec::Metric::kF1Micro) return all.f1();
  return counted == 0 ? kNan : sum / static_cast<double>(counted);
}

// Returns the position of the largest output, the first one among equals. Returns the row's width if an output is
// NaN.
size_t AnswerOf(std::span<const float> row) {
  size_t answer = 0;
  for (size_t c = 0; c < row.size(); ++c) {
    if (std::isnan(row[c])) return row.size();
    if (row[c] > row[answer]) answer = c;
  }
  return answer;
}

double F1OfClasses(spec::Metric metric, std::span<const float> outputs, std::span<const float> labels, size_t classes) {
  std::vector<Counts> counts(classes);
  bool any = false;
  for (size_t r = 0; r < labels.size(); ++r) {
    if (std::isnan(labels[r]) || labels[r] < 0 || labels[r] >= static_cast<float>(classes)) continue;
    any = true;
    const auto label = static_cast<size_t>(labels[r]);
    const size_t answer = AnswerOf(outputs.subspan(r * classes, classes));
    if (answer == label) {
      ++counts[label].right;
      continue;
    }
    ++counts[label].missed;
    if (answer < classes) ++counts[answer].wrong;
  }
  return any ? F1(counts, metric, /*everyone=*/false) : kNan;
}

// Counts each target separately; label 1 is the positive class.
std::vector<Counts> CountTargets(std::span<const float> outputs, std::span<const float> labels, size_t width,
                                 double& right, double& present) {
  std::vector<Counts> counts(width);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    ++present;
    Counts& target = counts[i % width];
    const bool label = labels[i] > 0.5F, answer = outputs[i] > 0;
    right += label == answer && !std::isnan(outputs[i]) ? 1 : 0;
    if (label && answer) ++target.right;
    if (label && !answer) ++target.missed;
    if (!label && answer) ++target.wrong;
  }
  return counts;
}

double MeanError(spec::Metric metric, std::span<const float> outputs, std::span<const float> labels) {
  double sum = 0, present = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    const double error = static_cast<double>(outputs[i]) - static_cast<double>(labels[i]);
    sum += metric == spec::Metric::kMae ? std::abs(error) : error * error;
    ++present;
  }
  if (present == 0) return kNan;
  return metric == spec::Metric::kMae ? sum / present : std::sqrt(sum / present);
}

double R2(std::span<const float> outputs, std::span<const float> labels, size_t width) {
  double sum = 0, counted = 0;
  for (size_t t = 0; t < width; ++t) {
    double mean = 0, present = 0, errors = 0, distances = 0;
    for (size_t i = t; i < labels.size(); i += width) {
      if (std::isnan(labels[i])) continue;
      mean += static_cast<double>(labels[i]);
      ++present;
    }
    if (present < 2) continue;
    mean /= present;
    for (size_t i = t; i < labels.size(); i += width) {
      if (std::isnan(labels[i])) continue;
      const double label = labels[i], error = label - static_cast<double>(outputs[i]), distance = label - mean;
      errors += error * error;
      distances += distance * distance;
    }
    sum += distances > 0 ? 1 - errors / distances : errors == 0 ? 1 : std::isnan(errors) ? kNan : 0;
    ++counted;
  }
  return counted == 0 ? kNan : sum / counted;
}

}  // namespace

double RocAuc(std::span<const float> scores, std::span<const float> labels, int64_t targets) {
  return MeanOverTargets(scores, labels, targets, AreaUnderCurve);
}

double ComputeMetric(spec::Metric metric, spec::Loss loss, std::span<const float> outputs,
                     std::span<const float> labels, int64_t width) {
  const auto columns = static_cast<size_t>(width);
  const bool classes = spec::TraitsOf(loss).labels == spec::LabelKind::kClass;
  switch (metric) {
    case spec::Metric::kMae:
    case spec::Metric::kRmse:
      return MeanError(metric, outputs, labels);
    case spec::Metric::kR2:
      return R2(outputs, labels, columns);
    case spec::Metric::kAccuracy:
    case spec::Metric::kF1Macro:
    case spec::Metric::kF1Micro: {
      if (classes && metric == spec::Metric::kAccuracy) return Accuracy(outputs, labels, width);
      if (classes) return F1OfClasses(metric, outputs, labels, columns);
      double right = 0, present = 0;
      const std::vector<Counts> counts = CountTargets(outputs, labels, columns, right, present);
      if (present == 0) return kNan;
      return metric == spec::Metric::kAccuracy ? right / present : F1(counts, metric, /*everyone=*/true);
    }
    case spec::Metric::kRocAuc:
    case spec::Metric::kAveragePrecision: {
      if (!classes) return MeanOverTargets(outputs, labels, width, AreaOf(metric));
      return MeanAgainstRest(outputs, labels, columns, AreaOf(metric));
    }
    // ComputeLinkMetric handles the metrics of links.
    case spec::Metric::kMrr:
    case spec::Metric::kHitsAt10:
    case spec::Metric::kHitsAt20:
    case spec::Metric::kHitsAt50:
    case spec::Metric::kHitsAt100:
      break;
  }
  return kNan;
}

double Accuracy(std::span<const float> outputs, std::span<const float> labels, int64_t classes) {
  const auto width = static_cast<size_t>(classes);
  int64_t right = 0, counted = 0;
  for (size_t r = 0; r < labels.size(); ++r) {
    if (std::isnan(labels[r])) continue;
    ++counted;
    if (labels[r] < 0 || labels[r] >= static_cast<float>(classes)) continue;
    const auto label = static_cast<size_t>(labels[r]);
    const std::span<const float> row = outputs.subspan(r * width, width);
    // The first of equal outputs is the answer, as in argmax. A comparison with NaN is false, so NaN is never right.
    bool largest = true;
    for (size_t c = 0; c < width; ++c) largest &= c < label ? row[c] < row[label] : row[c] <= row[label];
    if (largest) ++right;
  }
  return counted == 0 ? kNan : static_cast<double>(right) / static_cast<double>(counted);
}

namespace {

bool AnyNan(std::span<const float> values) {
  return std::ranges::any_of(values, [](float value) { return std::isnan(value); });
}

double HitsAt(int64_t k, const LinkScores& scores) {
  if (std::ssize(scores.negatives) < k) return 1;
  std::vector<float> negatives(scores.negatives.begin(), scores.negatives.end());
  const auto kth = negatives.begin() + (k - 1);
  std::ranges::nth_element(negatives, kth, std::greater());
  const auto hits = std::ranges::count_if(scores.links, [&](float score) { return score > *kth; });
  return static_cast<double>(hits) / static_cast<double>(scores.links.size());
}

std::vector<float> RanksAmongShared(const LinkScores& scores) {
  std::vector<float> ranks(scores.links.size(), std::numeric_limits<float>::quiet_NaN());
  if (AnyNan(scores.negatives)) return ranks;
  std::vector<float> negatives(scores.negatives.begin(), scores.negatives.end());
  std::ranges::sort(negatives);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (std::isnan(scores.links[i])) continue;
    const auto equal = std::ranges::equal_range(negatives, scores.links[i]);
    ranks[i] = static_cast<float>(1 + static_cast<double>(negatives.end() - equal.end()) +
                                  static_cast<double>(equal.size()) / 2);
  }
  return ranks;
}

}  // namespace

std::vector<float> RanksOf(const LinkScores& scores) {
  if (scores.share) return RanksAmongShared(scores);
  const size_t links = scores.links.size(), each = links == 0 ? 0 : scores.negatives.size() / links;
  std::vector<float> ranks;
  for (size_t i = 0; i < links; ++i) {
    const float score = scores.links[i];
    const auto negatives = scores.negatives.subspan(i * each, each);
    if (std::isnan(score) || AnyNan(negatives)) {
      ranks.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const auto above = std::ranges::count_if(negatives, [&](float other) { return other > score; });
    const auto equal = std::ranges::count(negatives, score);
    ranks.push_back(1 + static_cast<float>(above) + static_cast<float>(equal) / 2);
  }
  return ranks;
}

double ComputeLinkMetric(spec::Metric metric, const LinkScores& scores) {
  if (scores.links.empty() || AnyNan(scores.links) || AnyNan(scores.negatives)) return kNan;
  switch (metric) {
    case spec::Metric::kMrr: {
      double sum = 0;
      for (const float rank : RanksOf(scores)) sum += 1 / static_cast<double>(rank);
      return sum / static_cast<double>(scores.links.size());
    }
    case spec::Metric::kHitsAt10:
      return HitsAt(10, scores);
    case spec::Metric::kHitsAt20:
      return HitsAt(20, scores);
    case spec::Metric::kHitsAt50:
      return HitsAt(50, scores);
    case spec::Metric::kHitsAt100:
      return HitsAt(100, scores);
    default: {
      std::vector<float> all(scores.links.begin(), scores.links.end());
      all.insert(all.end(), scores.negatives.begin(), scores.negatives.end());
      std::vector<float> labels(all.size(), 0.0F);
      std::fill_n(labels.begin(), scores.links.size(), 1.0F);
      return ComputeMetric(metric, spec::Loss::kBce, all, labels, 1);
    }
  }
}

}  // namespace permafrost::nn
