#include "nn/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace permafrost::nn {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One target's: (score, positive), in any order. NaN where one kind is missing.
double AreaUnderCurve(std::vector<std::pair<float, bool>>& rows) {
  std::ranges::sort(rows, {}, &std::pair<float, bool>::first);
  // In halves, which are whole numbers: pairs of a negative below a positive count 2, tied ones 1.
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

}  // namespace

double RocAuc(std::span<const float> scores, std::span<const float> labels, int64_t targets) {
  const auto width = static_cast<size_t>(targets);
  double sum = 0;
  int64_t counted = 0;
  std::vector<std::pair<float, bool>> rows;
  for (size_t t = 0; t < width; ++t) {
    rows.clear();
    for (size_t i = t; i < labels.size(); i += width) {
      if (std::isnan(labels[i])) continue;
      if (std::isnan(scores[i])) return kNan;
      rows.emplace_back(scores[i], labels[i] > 0.5F);
    }
    const double area = AreaUnderCurve(rows);
    if (std::isnan(area)) continue;
    sum += area;
    ++counted;
  }
  return counted == 0 ? kNan : sum / static_cast<double>(counted);
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
    // The first of equal outputs is the answer, as of argmax; a comparison with NaN is false, so NaN is never right.
    bool largest = true;
    for (size_t c = 0; c < width; ++c) largest &= c < label ? row[c] < row[label] : row[c] <= row[label];
    if (largest) ++right;
  }
  return counted == 0 ? kNan : static_cast<double>(right) / static_cast<double>(counted);
}

}  // namespace permafrost::nn
